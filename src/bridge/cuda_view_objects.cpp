// The CUDA view in what compares with the device type CUDA in C: three entries of torch.Tensor, the types
// torch.cuda.FloatTensor and its like, an operator of TorchScript.
//
// An entry of a type implemented in C is a function pointer in that type's own table (PyGetSetDef,
// PyMethodDef). Pointing it at a function here leaves the attribute the object that it was, which Dynamo,
// torch.overrides and subclasses with __torch_function__ compare by identity, and costs less than a Python
// property. The functions pass everything on to PyTorch's own ones that does not concern an fl tensor.
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/Backend.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <string>
#include <string_view>

#include "bridge/bridge.h"
#include "bridge/cuda_view.h"
#include "bridge/lazy_init.h"

namespace py = pybind11;

namespace fl::bridge {
namespace {

constexpr std::string_view kCudaTypes = "torch.cuda.", kFlTypes = "torch.fl.";

getter is_cuda_before = nullptr;
PyCFunctionWithKeywords cuda_before = nullptr, type_before = nullptr;

// Objects of torch, borrowed for ever: torch is never unloaded.
PyObject* torch_object(const char* module, const char* name) {
  return py::object(py::module_::import(module).attr(name)).release().ptr();
}

// Whether a subclass or a mode wants to see the call: PyTorch's own function takes it there, and comes back
// here with the plain tensor.
bool intercepted(PyObject* self) {
  static PyObject* const tensor = torch_object("torch", "Tensor");
  static PyObject* const parameter = torch_object("torch.nn", "Parameter");
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(self));
  if ((type == tensor || type == parameter) && !at::impl::torch_function_mode_enabled()) return false;
  static PyObject* const asked = torch_object("torch._C", "_has_torch_function_unary");
  return py::reinterpret_steal<py::object>(PyObject_CallOneArg(asked, self)).ptr() == Py_True;
}

PyObject* tensor_is_cuda(PyObject* self, void* closure) {
  HANDLE_TH_ERRORS
  if (cuda_view_is_on() && !intercepted(self) && is_fl(THPVariable_Unpack(self))) Py_RETURN_TRUE;
  return is_cuda_before(self, closure);
  END_HANDLE_TH_ERRORS
}

c10::Device cuda_device(PyObject* device) {
  if (!device || device == Py_None)
    return c10::Device(kDevice, static_cast<c10::DeviceIndex>(current_device()));
  static PyObject* const type = torch_object("torch", "device");
  auto made = py::reinterpret_steal<py::object>(PyObject_CallOneArg(type, device));
  if (!made) throw python_error();
  const c10::Device chosen = reinterpret_cast<THPDevice*>(made.ptr())->device;
  TORCH_CHECK(chosen.type() == kDevice, "Invalid device, must be cuda device, but got ", chosen);
  return chosen;
}

PyObject* tensor_cuda(PyObject* self, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  if (!cuda_view_is_on() || intercepted(self)) return cuda_before(self, args, kwargs);
  static const char* names[] = {"device", "non_blocking", "memory_format", nullptr};
  PyObject *device = nullptr, *format = nullptr;
  int non_blocking = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op$O:cuda", const_cast<char**>(names), &device,
                                   &non_blocking, &format))
    return nullptr;
  const c10::Device target = cuda_device(device);
  lazy_init();
  const Tensor& tensor = THPVariable_Unpack(self);
  // All options, as PyTorch's own does: a trace records them.
  at::TensorOptions options = tensor.options().device(target);
  if (format && format != Py_None)
    options = options.memory_format(py::cast<at::MemoryFormat>(py::handle(format)));
  Tensor moved;
  {
    py::gil_scoped_release no_gil;
    moved = tensor.to(options, non_blocking != 0, false);
  }
  return THPVariable_Wrap(moved);
  END_HANDLE_TH_ERRORS
}

// "torch.fl.FloatTensor" for "torch.cuda.FloatTensor", given as text or as the type itself; else null.
py::object fl_type_name(PyObject* wanted) {
  std::string_view name;
  if (PyType_Check(wanted)) name = reinterpret_cast<PyTypeObject*>(wanted)->tp_name;
  else if (PyUnicode_Check(wanted)) {
    Py_ssize_t n = 0;
    const char* text = PyUnicode_AsUTF8AndSize(wanted, &n);
    if (!text) throw python_error();
    name = {text, static_cast<size_t>(n)};
  }
  if (!name.starts_with(kCudaTypes)) return {};
  return py::str(std::string(kFlTypes) + std::string(name.substr(kCudaTypes.size())));
}

PyObject* tensor_type(PyObject* self, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  if (!cuda_view_is_on() || intercepted(self)) return type_before(self, args, kwargs);
  const bool positional = PyTuple_GET_SIZE(args) > 0;
  PyObject* wanted = positional ? PyTuple_GET_ITEM(args, 0)
                     : kwargs   ? PyDict_GetItemString(kwargs, "dtype")
                                : nullptr;
  if (!wanted || wanted == Py_None) {
    auto text = py::reinterpret_steal<py::object>(type_before(self, args, kwargs));
    if (!text) return nullptr;
    const std::string name = py::cast<std::string>(text);
    if (!name.starts_with(kFlTypes)) return text.release().ptr();
    return py::str(std::string(kCudaTypes) + name.substr(kFlTypes.size())).release().ptr();
  }
  py::object name = fl_type_name(wanted);
  if (!name) return type_before(self, args, kwargs);
  lazy_init();
  if (positional) {
    py::tuple renamed(PyTuple_GET_SIZE(args));
    renamed[0] = name;
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(args); ++i)
      renamed[i] = py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(args, i));
    return type_before(self, renamed.ptr(), kwargs);
  }
  auto renamed = py::reinterpret_steal<py::dict>(PyDict_Copy(kwargs));
  renamed["dtype"] = name;
  return type_before(self, args, renamed.ptr());
  END_HANDLE_TH_ERRORS
}

PyObject* entry_of_tensor(const char* name, PyTypeObject& kind) {
  static PyObject* const base = torch_object("torch._C", "TensorBase");
  PyObject* entry = PyDict_GetItemString(reinterpret_cast<PyTypeObject*>(base)->tp_dict, name);
  TORCH_CHECK(entry && Py_TYPE(entry) == &kind, "torch-fl: torch.Tensor.", name,
              " is not what it is in the PyTorch versions that torch-fl knows, so the CUDA view stays off");
  return entry;
}

PyCFunctionWithKeywords replace_method(const char* name, PyCFunctionWithKeywords ours) {
  PyMethodDef* entry =
      reinterpret_cast<PyMethodDescrObject*>(entry_of_tensor(name, PyMethodDescr_Type))->d_method;
  TORCH_CHECK(entry->ml_flags == (METH_VARARGS | METH_KEYWORDS), "torch-fl: torch.Tensor.", name,
              " takes its arguments in another way than torch-fl knows, so the CUDA view stays off");
  auto before = reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void (*)()>(entry->ml_meth));
  entry->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(ours));
  return before;
}

// x.cuda() in a script function is an operator of the interpreter, in C++. (x.is_cuda is one too, in a table
// that PyTorch does not export: it is False there; x.device.type is "cuda".)
void replace_script_operator() {
  using torch::jit::Operator;
  Operator ours(
      "aten::cuda(Tensor(a) self) -> Tensor(a|b)",
      [](torch::jit::Stack& stack) {
        const Tensor a = torch::jit::pop(stack).toTensor();
        torch::jit::push(stack, a.to(cuda_view_is_on() ? kDevice : c10::DeviceType::CUDA));
      },
      c10::AliasAnalysisKind::FROM_SCHEMA);
  torch::jit::deregisterOperator(ours.schema());
  torch::jit::registerOperator(std::move(ours));
}

// torch.cuda.FloatTensor as PyTorch makes it (torch/csrc/tensor/python_tensor.cpp), which no header declares.
struct LegacyType {
  PyTypeObject type;
  PyObject *dtype, *layout;
  bool is_cuda, is_xpu;
  char name[64];
  int backend, scalar_type;
};

bool is_known(PyObject* object) {
  const auto* t = reinterpret_cast<LegacyType*>(object);
  if (t->type.tp_basicsize != sizeof(LegacyType) || t->type.tp_name != t->name) return false;
  for (const auto& [name, value] : {std::pair{"dtype", t->dtype}, {"layout", t->layout}})
    if (py::reinterpret_borrow<py::object>(object).attr(name).ptr() != value) return false;
  return t->scalar_type == static_cast<int>(reinterpret_cast<THPDtype*>(t->dtype)->scalar_type);
}

}  // namespace

void hook_cuda_objects() {
  if (is_cuda_before) return;
  auto* is_cuda =
      reinterpret_cast<PyGetSetDescrObject*>(entry_of_tensor("is_cuda", PyGetSetDescr_Type))->d_getset;
  cuda_before = replace_method("cuda", &tensor_cuda);
  type_before = replace_method("type", &tensor_type);
  is_cuda_before = is_cuda->get;
  is_cuda->get = &tensor_is_cuda;
  replace_script_operator();
}

void show_cuda_types(bool as_ours) {
  using at::Backend;
  constexpr std::pair<Backend, Backend> kPairs[] = {{Backend::CUDA, Backend::PrivateUse1},
                                                    {Backend::SparseCUDA, Backend::SparsePrivateUse1}};
  for (py::handle type : py::module_::import("torch").attr("_tensor_classes")) {
    auto* t = reinterpret_cast<LegacyType*>(type.ptr());
    if (!std::string_view(t->type.tp_name).starts_with(kCudaTypes)) continue;
    if (!is_known(type.ptr())) {
      log(FL_LOG_WARNING, std::string(t->type.tp_name) +
                              " is laid out in a way that torch-fl does not know: "
                              "it is not a type of fl tensors");
      return;
    }
    for (const auto& [cuda, ours] : kPairs) {
      if (t->backend == static_cast<int>(as_ours ? cuda : ours)) {
        t->backend = static_cast<int>(as_ours ? ours : cuda);
        t->is_cuda = !as_ours;
        break;
      }
    }
  }
}

}  // namespace fl::bridge
