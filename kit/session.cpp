#include "session.h"

#include <cstring>
#include <map>
#include <mutex>

namespace kit {

namespace {

constexpr size_t kGuard = 256;  // bytes of poison before and behind each tensor
constexpr char kPoison = static_cast<char>(0xA5);

std::mutex scratch_mutex;
std::map<fl_stream, std::vector<std::pair<int32_t, void*>>> scratch_blocks;

void free_scratch(fl_stream stream) {
  std::vector<std::pair<int32_t, void*>> blocks;
  {
    std::lock_guard<std::mutex> lock(scratch_mutex);
    blocks.swap(scratch_blocks[stream]);
  }
  for (auto& [device, address] : blocks) chip().memory.free(device, address);
}

struct Placement {
  std::vector<int64_t> strides;
  int64_t first, elements;
};

Placement place(const std::vector<int64_t>& sizes, Layout layout) {
  size_t n = sizes.size();
  std::vector<int64_t> strides(n);
  int64_t step = layout == Layout::stepped ? 2 : 1, pitch = step, first = 0;
  if (layout == Layout::transposed) {
    for (size_t d = 0; d < n; ++d) strides[d] = pitch, pitch *= sizes[d];
  } else {
    for (size_t d = n; d-- > 0;) {
      bool constant = layout == Layout::broadcast && d == 0;
      strides[d] = constant ? 0 : pitch;
      if (constant) continue;
      pitch *= sizes[d] + (layout == Layout::padded && d + 1 == n ? 3 : 0);
    }
  }
  int64_t elements = std::max<int64_t>(pitch, 1);
  if (layout == Layout::negative)
    for (size_t d = 0; d < n; ++d) first += (sizes[d] - 1) * strides[d], strides[d] = -strides[d];
  if (layout == Layout::offset) first = 5, elements += 5;
  return {strides, first, elements};
}

}  // namespace

const char* layout_name(Layout layout) {
  static const char* const kNames[] = {"contiguous",  "transposed", "negative strides", "stride 2",
                                       "padded rows", "offset",     "stride 0"};
  return kNames[static_cast<int>(layout)];
}

const std::vector<Layout> kInputLayouts = {Layout::contiguous, Layout::transposed, Layout::negative,
                                           Layout::stepped,    Layout::padded,     Layout::offset,
                                           Layout::broadcast};
const std::vector<Layout> kOutputLayouts = {Layout::contiguous, Layout::transposed, Layout::negative,
                                            Layout::stepped,    Layout::padded,     Layout::offset};

fl_status host_scratch(const fl_launch* launch, size_t bytes, void** out) {
  fl_status status = chip().memory.malloc(launch->device, bytes ? bytes : 1, out);
  if (status != FL_OK) return status;
  std::lock_guard<std::mutex> lock(scratch_mutex);
  scratch_blocks[launch->stream].emplace_back(launch->device, *out);
  return FL_OK;
}

// ------------------------------------------------------------------ tensor

Tensor::Tensor(Tensor&& other) noexcept { *this = std::move(other); }

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(dtype, other.dtype);
  std::swap(sizes, other.sizes);
  std::swap(strides, other.strides);
  std::swap(first, other.first);
  std::swap(block, other.block);
  std::swap(image, other.image);
  std::swap(session, other.session);
  return *this;
}

Tensor::~Tensor() {
  if (block) session->release(block);
}

const fl_tensor* Tensor::view() {
  view_.data = static_cast<char*>(block) + kGuard + first * static_cast<int64_t>(dtype_size(dtype));
  view_.sizes = sizes.data();
  view_.strides = strides.data();
  view_.ndim = static_cast<int32_t>(sizes.size());
  view_.dtype = static_cast<uint8_t>(dtype);
  return &view_;
}

// ----------------------------------------------------------------- session

Session::Session(int32_t device_) : device(device_) {
  ok(chip().device.open(device), "open");
  ok(chip().stream.create(device, 0, &stream), "stream create");
  launch = tagged(0);
}

Session::~Session() {
  chip().stream.synchronize(stream, -1);
  free_scratch(stream);
  chip().stream.destroy(stream);
}

fl_launch Session::tagged(uint64_t tag, uint32_t flags) const {
  fl_launch l{};
  l.stream = stream;
  l.tag = tag;
  l.device = device;
  l.flags = flags;
  return l;
}

void* Session::allocate(size_t bytes) {
  void* address = nullptr;
  ok(chip().memory.malloc(device, bytes, &address), "malloc");
  return address;
}

void Session::release(void* address) {
  chip().stream.synchronize(stream, -1);
  chip().memory.free(device, address);
}

void Session::upload(void* to, const void* from, size_t bytes) {
  LaunchLock lock;
  ok(chip().memory.copy(&launch, FL_HOST_TO_DEVICE, to, from, bytes), "copy host to device");
}

void Session::download(void* to, const void* from, size_t bytes) {
  {
    LaunchLock lock;
    ok(chip().memory.copy(&launch, FL_DEVICE_TO_HOST, to, from, bytes), "copy device to host");
  }
  synchronize();
}

void Session::synchronize() {
  fl_status status = chip().stream.synchronize(stream, -1);
  fl_fault fault{};
  fault.size = sizeof fault;
  if (status != FL_OK) {
    std::string said = chip_error();
    bool taken = chip().stream.fault(stream, &fault) == FL_OK;
    stop("synchronize gave %s: %s", status_name(status), taken ? fault.text : said.c_str());
  }
  free_scratch(stream);
}

Tensor Session::put(const Array& array, Layout layout) {
  Tensor t = output(array.dtype, array.sizes, layout);
  size_t size = dtype_size(array.dtype);
  for (int64_t i = 0, n = array.numel(); i < n; ++i) {
    std::vector<int64_t> at = coordinates(i, array.sizes);
    int64_t element = t.first;
    for (size_t d = 0; d < at.size(); ++d) element += at[d] * t.strides[d];
    memcpy(&t.image[kGuard + element * size], &array.bytes[i * size], size);
  }
  upload(t.block, t.image.data(), t.image.size());
  return t;
}

Tensor Session::output(unsigned dtype, const std::vector<int64_t>& sizes, Layout layout) {
  Placement p = place(sizes, layout);
  Tensor t;
  t.session = this;
  t.dtype = dtype;
  t.sizes = sizes;
  t.strides = p.strides;
  t.first = p.first;
  t.image.assign(static_cast<size_t>(p.elements) * dtype_size(dtype) + 2 * kGuard, kPoison);
  t.block = allocate(t.image.size());
  upload(t.block, t.image.data(), t.image.size());
  return t;
}

Array Session::get(Tensor& t) {
  synchronize();
  std::vector<char> now(t.image.size());
  download(now.data(), t.block, now.size());
  Array array(t.dtype, t.sizes);
  size_t size = dtype_size(t.dtype);
  for (int64_t i = 0, n = array.numel(); i < n; ++i) {
    std::vector<int64_t> at = coordinates(i, t.sizes);
    int64_t element = t.first;
    for (size_t d = 0; d < at.size(); ++d) element += at[d] * t.strides[d];
    memcpy(&array.bytes[i * size], &now[kGuard + element * size], size);
    memcpy(&t.image[kGuard + element * size], &now[kGuard + element * size], size);
  }
  if (memcmp(now.data(), t.image.data(), now.size()) != 0) {
    size_t at = 0;
    while (now[at] == t.image[at]) ++at;
    fail("memory outside of the tensor was written: %lld bytes from its index 0",
         static_cast<long long>(at) - static_cast<long long>(kGuard + t.first * size));
  }
  return array;
}

Array constant_along_first(Array array) {
  if (array.sizes.empty()) return array;
  size_t slice = array.bytes.size() / static_cast<size_t>(array.sizes[0]);
  for (int64_t i = 1; i < array.sizes[0]; ++i) memcpy(&array.bytes[i * slice], array.bytes.data(), slice);
  return array;
}

}  // namespace kit
