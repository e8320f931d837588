// A stream on a device of the chip under test, and tensors in its memory.
#pragma once

#include <string>
#include <vector>

#include "kit.h"
#include "number.h"

namespace kit {

fl_status host_scratch(const fl_launch* launch, size_t bytes, void** out);  // fl_host.scratch

// How a tensor lies in memory.  Gaps and the space around it are poisoned and
// checked when it is read back.
enum class Layout { contiguous, transposed, negative, stepped, padded, offset, broadcast };
const char* layout_name(Layout layout);
extern const std::vector<Layout> kInputLayouts;   // all
extern const std::vector<Layout> kOutputLayouts;  // without broadcast

class Session;

class Tensor {
 public:
  Tensor() = default;
  const fl_tensor* view();
  fl_tensor operator*() { return *view(); }
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(Tensor&&) noexcept;
  ~Tensor();

  unsigned dtype = FL_NONE;
  std::vector<int64_t> sizes, strides;  // change them for a view of your own
  int64_t first = 0;                    // element number of index 0 within the block
  void* block = nullptr;
  std::vector<char> image;  // what the whole block should hold
  Session* session = nullptr;

 private:
  fl_tensor view_{};
};

class Session {
 public:
  explicit Session(int32_t device = 0);
  ~Session();
  Session(const Session&) = delete;

  int32_t device;
  fl_stream stream = nullptr;
  fl_launch launch{};  // tag 0, no flags
  fl_launch tagged(uint64_t tag, uint32_t flags = 0) const;

  // Device copy of an array.  With Layout::broadcast dimension 0 has stride 0 and the array must be constant
  // along it.
  Tensor put(const Array& array, Layout layout = Layout::contiguous);
  Tensor output(unsigned dtype, const std::vector<int64_t>& sizes,
                Layout layout = Layout::contiguous);  // poisoned
  // After synchronizing.  Fails when anything but the tensor's own elements changed.
  Array get(Tensor& tensor);

  void* allocate(size_t bytes);
  void release(void* address);
  void upload(void* to, const void* from, size_t bytes);
  void download(void* to, const void* from, size_t bytes);
  void synchronize();  // stops on a fault, with its text
};

// One launch: locks where the chip asks for it.
#define KIT_LAUNCH(entry, launch_ptr, args_ptr)          \
  ([&]() -> fl_status {                                  \
    ::kit::LaunchLock lock;                              \
    return ::kit::chip().op.entry(launch_ptr, args_ptr); \
  }())

// Makes an array constant along dimension 0 (for Layout::broadcast).
Array constant_along_first(Array array);

}  // namespace kit
