#include <torch/csrc/python_headers.h>

#include "bridge/python_lines.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/pythoncapi_compat.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/bridge.h"

namespace fl::bridge {

namespace {

// Folders whose frames are never the user's, each with a '/' at the end.
std::vector<std::string>& library_folders() {
  static auto& folders = *new std::vector<std::string>;
  return folders;
}

bool is_library(std::string_view file) {
  if (file.starts_with("<frozen ")) return true;
  for (const std::string& folder : library_folders())
    if (file.starts_with(folder)) return true;
  return false;
}

// "train.py:12" under the current folder, the whole path elsewhere.  Made once
// for each line and kept for ever.
const char* intern(std::string_view file, int line) {
  using Lines = std::map<std::pair<std::string, int>, std::string>;
  static auto& lines = *new Lines;       // guarded by the interpreter lock…
  static auto& mutex = *new std::mutex;  // …where Python has one
  std::lock_guard lock(mutex);
  auto [place, is_new] = lines.try_emplace({std::string(file), line});
  if (is_new) {
    std::error_code error;
    std::string folder = std::filesystem::current_path(error).string() + "/";
    std::string_view shown = file;
    if (!error && shown.starts_with(folder)) shown.remove_prefix(folder.size());
    place->second = std::string(shown) + ":" + std::to_string(line);
  }
  return place->second.c_str();
}

// PyTorch gives the interpreter lock back before it dispatches an operator, so
// it has to be taken here.  No lock of ours is held at a submission, so nobody
// who holds the interpreter's can be waiting for us.
class InterpreterLock {
 public:
  // Threads that Python does not know have no frames: they never wait.
  InterpreterLock() {
    if (!Py_IsInitialized() || Py_IsFinalizing() || !PyGILState_GetThisThreadState()) return;
    state_ = PyGILState_Ensure();
    held_ = true;
  }
  ~InterpreterLock() {
    if (held_) PyGILState_Release(state_);
  }
  InterpreterLock(const InterpreterLock&) = delete;
  InterpreterLock& operator=(const InterpreterLock&) = delete;
  bool held() const { return held_; }

 private:
  PyGILState_STATE state_{};
  bool held_ = false;
};

const char* find_line() {
  InterpreterLock lock;
  if (!lock.held()) return nullptr;
  THPObjectPtr frame(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.get());
    THPObjectPtr code(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
    Py_ssize_t length = 0;
    PyObject* name = reinterpret_cast<PyCodeObject*>(code.get())->co_filename;
    const char* file = PyUnicode_AsUTF8AndSize(name, &length);
    if (!file) {
      PyErr_Clear();  // a file name that is no text cannot be shown
      return nullptr;
    }
    std::string_view view(file, static_cast<size_t>(length));
    if (!is_library(view)) return intern(view, PyFrame_GetLineNumber(f));
    frame = reinterpret_cast<PyObject*>(PyFrame_GetBack(f));
  }
  return nullptr;
}

void add_folder(const char* package) {
  THPObjectPtr module(PyImport_ImportModule(package));
  if (!module) throw python_error();
  THPObjectPtr file(PyObject_GetAttrString(module, "__file__"));
  const char* path = file ? PyUnicode_AsUTF8(file) : nullptr;
  if (!path) throw python_error();
  library_folders().push_back(std::filesystem::path(path).parent_path().string() + "/");
}

}  // namespace

void install_line_finder() {
  add_folder("torch");
  add_folder("torch_fl");
  set_line_finder(&find_line);
}

}  // namespace fl::bridge
