// PyTorch parses every device string in one exported function of libc10, the
// constructor c10::Device(const std::string&), and takes the name of this device
// type, wherever it prints or compares it, from another,
// c10::get_privateuse1_backend.  Both are called through import slots (GOT
// entries) of the libraries that use them, so pointing those slots at functions
// here changes every API of PyTorch at once, replaces no attribute of torch,
// and costs nothing for each operator: one comparison a parsed string.
//
// Four more functions are asked for the device type CUDA by number, where no
// name is parsed: torch.is_autocast_enabled() and its like mean CUDA's autocast.
//
// The slots are found by the symbols' names.  Where a PyTorch version has no
// such symbol, nothing is patched and cuda_view_missing() names it.
#include "bridge/cuda_view.h"

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>
#include <torch/csrc/utils/pybind.h>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "bridge/bridge.h"
#include "chip/visible.h"

namespace fl::bridge {
namespace {

#if defined(__x86_64__)
constexpr unsigned kSlotKinds[] = {R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
#elif defined(__aarch64__)
constexpr unsigned kSlotKinds[] = {R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT};
#else
#error "add the relocation kinds of import slots for this processor"
#endif

// ----------------------------------------------------------- import slots

struct Slot {
  void** address;
  void* before;
};

struct Hook {
  const char* symbol;
  void* replacement;
  void* original = nullptr;  // null: this PyTorch has no such symbol
  bool on = false;
  std::vector<Slot> slots;
};

void write_slot(void** slot, void* value) {
  // Tables of fully protected libraries (BIND_NOW) are read-only after loading.
  // The page is left writable: making it read-only again could race with the
  // dynamic linker, which binds other slots of the same page lazily.
  uintptr_t page = reinterpret_cast<uintptr_t>(slot) & ~static_cast<uintptr_t>(sysconf(_SC_PAGESIZE) - 1);
  TORCH_CHECK(mprotect(reinterpret_cast<void*>(page), sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE) == 0,
              "torch-fl: the import table at ", slot, " cannot be made writable: ", strerror(errno));
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

// The dynamic section of one loaded library, as far as import slots need it.
struct Library {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  const ElfW(Rela) * tables[2] = {nullptr, nullptr};
  size_t counts[2] = {0, 0};
  bool is_c10 = false, uses_c10 = false;

  explicit Library(const dl_phdr_info& info) {
    const ElfW(Dyn)* dynamic = nullptr;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
        dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
      }
    }
    size_t relative = 0;
    for (const ElfW(Dyn)* d = dynamic; d && d->d_tag != DT_NULL; ++d) {
      switch (d->d_tag) {
        case DT_SYMTAB:
          symbols = reinterpret_cast<const ElfW(Sym)*>(d->d_un.d_ptr);
          break;
        case DT_STRTAB:
          names = reinterpret_cast<const char*>(d->d_un.d_ptr);
          break;
        case DT_JMPREL:
          tables[0] = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
          break;
        case DT_PLTRELSZ:
          counts[0] = d->d_un.d_val / sizeof(ElfW(Rela));
          break;
        case DT_RELA:
          tables[1] = reinterpret_cast<const ElfW(Rela)*>(d->d_un.d_ptr);
          break;
        case DT_RELASZ:
          counts[1] = d->d_un.d_val / sizeof(ElfW(Rela));
          break;
        case DT_RELACOUNT:
          relative = d->d_un.d_val;
          break;
        default:
          break;
      }
    }
    // The vDSO's addresses are not relocated, and it imports nothing.
    if (!names || reinterpret_cast<uintptr_t>(names) < info.dlpi_addr) return;
    // Relative relocations come first, are the large majority and have no symbol.
    if (tables[1] && relative <= counts[1]) tables[1] += relative, counts[1] -= relative;
    const char* slash = strrchr(info.dlpi_name, '/');
    is_c10 = uses_c10 = strncmp(slash ? slash + 1 : info.dlpi_name, "libc10.so", 9) == 0;
    for (const ElfW(Dyn)* d = dynamic; d->d_tag != DT_NULL && !uses_c10; ++d) {
      uses_c10 = d->d_tag == DT_NEEDED && strncmp(names + d->d_un.d_val, "libc10.so", 9) == 0;
    }
  }
};

// ----------------------------------------------------------------- the hooks

void parse_device(c10::Device* self, const std::string& text);
std::string backend_name(bool lower_case);
bool is_autocast_enabled(c10::DeviceType type);
void set_autocast_enabled(c10::DeviceType type, bool enabled);
ScalarType get_autocast_dtype(c10::DeviceType type);
void set_autocast_dtype(c10::DeviceType type, ScalarType dtype);

enum { kParse, kName, kIsAutocastEnabled, kSetAutocastEnabled, kGetAutocastDtype, kSetAutocastDtype, kHooks };

template <class F>
void* address(F* function) {
  return reinterpret_cast<void*>(function);
}

// Never destroyed: PyTorch parses device strings while the process exits.
std::array<Hook, kHooks>& hooks() {
  static auto& table = *new std::array<Hook, kHooks>{{
      {"_ZN3c106DeviceC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", address(&parse_device)},
      {"_ZN3c1023get_privateuse1_backendB5cxx11Eb", address(&backend_name)},
      {"_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", address(&is_autocast_enabled)},
      {"_ZN2at8autocast20set_autocast_enabledEN3c1010DeviceTypeEb", address(&set_autocast_enabled)},
      {"_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE", address(&get_autocast_dtype)},
      {"_ZN2at8autocast18set_autocast_dtypeEN3c1010DeviceTypeENS1_10ScalarTypeE",
       address(&set_autocast_dtype)},
  }};
  return table;
}

// PyTorch's own function behind a hook.
template <class F>
F* original(int hook) {
  return reinterpret_cast<F*>(hooks()[hook].original);
}

std::mutex& patch_lock() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}
std::atomic<bool> view_on{false};
std::atomic<unsigned long long> libraries_seen{0};

unsigned long long libraries_loaded() {
  unsigned long long adds = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;
      },
      &adds);
  return adds;
}

// One pass for all hooks: the cost is reading symbols' names, so those that a library defines itself, which
// are most, are passed over, except in libc10, which calls its own through slots.
void patch_library(const dl_phdr_info& info, const Library& library) {
  for (int t = 0; t < 2; ++t) {
    for (size_t i = 0; library.tables[t] && i < library.counts[t]; ++i) {
      const ElfW(Rela) & entry = library.tables[t][i];
      unsigned kind = ELF64_R_TYPE(entry.r_info);
      if (kind != kSlotKinds[0] && kind != kSlotKinds[1]) continue;
      const ElfW(Sym) & symbol = library.symbols[ELF64_R_SYM(entry.r_info)];
      if (symbol.st_shndx != SHN_UNDEF && !library.is_c10) continue;
      const char* name = library.names + symbol.st_name;
      for (Hook& hook : hooks()) {
        if (!hook.on || strcmp(name, hook.symbol) != 0) continue;
        void** slot = reinterpret_cast<void**>(info.dlpi_addr + entry.r_offset);
        if (*slot == hook.replacement) continue;
        hook.slots.push_back({slot, *slot});
        write_slot(slot, hook.replacement);
      }
    }
  }
}

void patch_all() {
  std::lock_guard lock(patch_lock());
  libraries_seen = libraries_loaded();
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void*) {
        Library library(*info);
        if (library.uses_c10) patch_library(*info, library);
        return 0;
      },
      nullptr);
}

// Libraries loaded after the hooks went in have slots of their own.  Looked at
// when a device string is parsed: any use of one in Python comes by here.
void patch_new_libraries() {
  if (libraries_loaded() != libraries_seen.load(std::memory_order_relaxed)) patch_all();
}

bool available(Hook& hook) {
  // Through this library, which links PyTorch's: Python loads them with local scope, where RTLD_DEFAULT does
  // not look.
  static void* const self = [] {
    Dl_info where{};
    dladdr(reinterpret_cast<void*>(&bind_cuda_view), &where);
    return where.dli_fname ? dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  }();
  if (!hook.original && self) hook.original = dlsym(self, hook.symbol);
  return hook.original != nullptr;
}

void switch_on(std::initializer_list<int> which) {
  bool change = false;
  for (int i : which) {
    TORCH_CHECK(available(hooks()[i]), "torch-fl: this PyTorch has no ", hooks()[i].symbol,
                ", which device names need");
    change |= !hooks()[i].on;
  }
  if (!change) return;
  for (int i : which) hooks()[i].on = true;
  patch_all();
}

void switch_off(Hook& hook) {
  std::lock_guard lock(patch_lock());
  hook.on = false;
  for (const Slot& slot : hook.slots) write_slot(slot.address, slot.before);
  hook.slots.clear();
}

// Device types that PyTorch serves itself.  Any other name may be a chip's,
// even one that PyTorch reserved long ago and never used.
constexpr std::string_view kServedByTorch[] = {"cpu", "cuda", "meta", "fl",     "mps",  "xpu",
                                               "xla", "hpu",  "mtia", "mkldnn", "lazy", "privateuseone"};

// "name" or "name:index" with a plain decimal index; index -1 when absent.
bool split(const std::string& text, std::string_view& name, int& index) {
  std::string_view all = text;
  size_t colon = all.find(':');
  name = all.substr(0, colon);
  index = -1;
  if (colon == std::string_view::npos) return !name.empty();
  std::string_view digits = all.substr(colon + 1);
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  bool plain =
      !digits.empty() && digits[0] >= '0' && digits[0] <= '9' && (digits[0] != '0' || digits.size() == 1);
  return plain && error == std::errc() && end == digits.data() + digits.size();
}

// PyTorch wraps an index into eight bits without a word ("fl:256" is fl:0 there).
c10::Device fl_device(const std::string& text, int index) {
  TORCH_CHECK(index <= 127, "torch-fl: \"", text, "\": device indices are at most 127");
  return c10::Device(kDevice, static_cast<c10::DeviceIndex>(index));
}

void parse_device(c10::Device* self, const std::string& text) {
  patch_new_libraries();
  std::string_view name;
  int index = -1;
  if (split(text, name, index)) {
    if ((name == "cuda" && cuda_view_is_on()) || name == "fl") {
      *self = fl_device(text, index);
      return;
    }
    bool served = false;
    for (std::string_view known : kServedByTorch) served |= name == known;
    if (!served) {
      int32_t found = guarded([&] { return find_device(text); });
      if (found >= 0) {
        *self = fl_device(text, found);
        return;
      }
    }
  }
  original<void(c10::Device*, const std::string&)>(kParse)(self, text);
}

std::string backend_name(bool lower_case) {
  if (cuda_view_is_on()) return lower_case ? "cuda" : "CUDA";
  return original<std::string(bool)>(kName)(lower_case);
}

// In code that means CUDA's autocast by the type's number.
c10::DeviceType seen(c10::DeviceType type) {
  return type == c10::DeviceType::CUDA && cuda_view_is_on() ? kDevice : type;
}

bool is_autocast_enabled(c10::DeviceType type) {
  return original<bool(c10::DeviceType)>(kIsAutocastEnabled)(seen(type));
}
void set_autocast_enabled(c10::DeviceType type, bool enabled) {
  original<void(c10::DeviceType, bool)>(kSetAutocastEnabled)(seen(type), enabled);
}
ScalarType get_autocast_dtype(c10::DeviceType type) {
  return original<ScalarType(c10::DeviceType)>(kGetAutocastDtype)(seen(type));
}
void set_autocast_dtype(c10::DeviceType type, ScalarType dtype) {
  original<void(c10::DeviceType, ScalarType)>(kSetAutocastDtype)(seen(type), dtype);
}

}  // namespace

bool cuda_view_is_on() noexcept { return view_on.load(std::memory_order_relaxed); }

void bind_cuda_view(pybind11::module& m) {
  // Asked when the devices are found: scripts set it after import torch.
  set_index_choice("CUDA_VISIBLE_DEVICES", []() -> std::optional<std::string> {
    const char* text = cuda_view_is_on() ? getenv("CUDA_VISIBLE_DEVICES") : nullptr;
    return text ? std::optional<std::string>(text) : std::nullopt;
  });
  m.def(
      "device_names_enable", [] { switch_on({kParse}); },
      "Make chip names such as \"sim:1\" device strings.");
  m.def(
      "cuda_view_missing",
      [] {
        std::vector<std::string> missing;
        for (Hook& hook : hooks()) {
          if (!available(hook)) missing.emplace_back(hook.symbol);
        }
        return missing;
      },
      "The symbols that the CUDA view needs and this PyTorch lacks.");
  m.def(
      "cuda_view_enable",
      [] {
        switch_on(
            {kParse, kName, kIsAutocastEnabled, kSetAutocastEnabled, kGetAutocastDtype, kSetAutocastDtype});
        hook_cuda_objects();
        view_on = true;
        show_cuda_types(true);
        profile_as_cuda(true);
      },
      "Give fl devices the name \"cuda\", parsed and printed.");
  m.def(
      "cuda_view_disable",
      [] {
        view_on = false;
        show_cuda_types(false);
        profile_as_cuda(false);
        for (int i = kName; i < kHooks; ++i) switch_off(hooks()[i]);
      },
      "Give fl devices their own name again.");
  m.def("cuda_view_is_enabled", &cuda_view_is_on);
  m.def(
      "cuda_view_slots",
      [] {
        size_t n = 0;
        for (const Hook& hook : hooks()) n += hook.slots.size();
        return n;
      },
      "How many import slots are patched.");
}

}  // namespace fl::bridge
