/*
 * fl/chip.h — the torch-fl chip ABI, version 1: devices, memory, streams.
 *
 * This header, fl/program.h and fl/ops.h are all that a chip author reads.  A chip is one
 * shared library with one exported symbol, fl_chip_entry().  The library
 * contains no PyTorch and imports nothing from the host: what it needs from
 * the host arrives in the host table (fl_host).
 *
 *     clone chips/template/template.c, then prove it with:  fl-kit ./mychip.so
 *
 * HOW TO READ IT.  Sentences that begin with a tag such as [MEM-3] are
 * requirements on the chip; the kit has a test of the same tag for each.
 * Everything that is not tagged is explanation.
 *
 * CONVENTIONS
 *   - Functions return fl_status.  FL_OK is 0.  Before returning anything
 *     else, a chip may call fl_host.set_error() with a sentence for a person.
 *   - Output parameters are written only when FL_OK is returned.
 *   - "device" is the chip's own index, 0 <= device < count.  There is no
 *     current device and no current stream inside a chip: both are the
 *     host's notion and every call names what it means.
 *   - Pointers in argument structs are borrowed: they are valid during the
 *     call only.  A chip that works later copies what it needs.
 *   - Sizes of memory are in bytes; sizes and strides of tensors are in
 *     elements.
 *
 * THREADING.  Every function may be called from any thread, and from several
 * threads at once, unless its comment says otherwise.  Two launches on one
 * stream may arrive at the same time from two threads; a chip that cannot
 * take that sets FL_CHIP_SERIAL_LAUNCH and the host locks (3 ns a launch).
 *
 * GROWTH.  Tables start with their size in bytes and grow only at the end;
 * a NULL entry means absent.  Both sides use the smaller of the two sizes,
 * so an older or a newer chip loads.  Hot structs (fl_tensor, fl_launch and
 * the argument structs of fl/ops.h) are frozen for the major version.
 */
#ifndef FL_CHIP_H
#define FL_CHIP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_ABI_MAJOR 1
#define FL_ABI_MINOR 0
#define FL_ABI_VERSION ((uint32_t)((FL_ABI_MAJOR << 16) | FL_ABI_MINOR))

#if defined(_WIN32)
#define FL_EXPORT __declspec(dllexport)
#else
#define FL_EXPORT __attribute__((visibility("default")))
#endif

/* Layouts are part of the ABI: this fails to compile where one has moved. */
#define FL_STATIC_ASSERT(name, condition) typedef char fl_assert_##name[(condition) ? 1 : -1]

/* ------------------------------------------------------------------ status
 * X(name, value, sentence) */
/* clang-format off */
#define FL_STATUS_MAP(X)                                                              \
  X(OK, 0, "success")                                                                 \
  X(UNSUPPORTED, 1, "the chip does not do this; nothing happened")                    \
  X(INVALID, 2, "an argument breaks a rule of the ABI")                               \
  X(OUT_OF_MEMORY, 3, "not enough memory on the device")                              \
  X(NOT_READY, 4, "the work has not finished yet")                                    \
  X(TIMEOUT, 5, "the time limit passed before the work finished")                     \
  X(FAILED, 6, "the operation failed")                                                \
  X(INDEX_OUT_OF_RANGE, 7, "an index lies outside its dimension")                     \
  X(DEVICE_LOST, 8, "the device is gone; every later call on it returns this")
/* clang-format on */

typedef int32_t fl_status;
enum {
#define FL_STATUS_ENUM(name, value, sentence) FL_##name = (value),
  FL_STATUS_MAP(FL_STATUS_ENUM)
#undef FL_STATUS_ENUM
      FL_STATUS_COUNT
};

/* ------------------------------------------------------------------ dtypes
 * X(name, value, bytes, text) */
/* clang-format off */
#define FL_DTYPE_MAP(X)                    \
  X(BOOL, 1, 1, "bool")                    \
  X(U8, 2, 1, "uint8")                     \
  X(I8, 3, 1, "int8")                      \
  X(U16, 4, 2, "uint16")                   \
  X(I16, 5, 2, "int16")                    \
  X(U32, 6, 4, "uint32")                   \
  X(I32, 7, 4, "int32")                    \
  X(U64, 8, 8, "uint64")                   \
  X(I64, 9, 8, "int64")                    \
  X(F16, 10, 2, "float16")                 \
  X(BF16, 11, 2, "bfloat16")               \
  X(F32, 12, 4, "float32")                 \
  X(F64, 13, 8, "float64")                 \
  X(C32, 14, 4, "complex32")               \
  X(C64, 15, 8, "complex64")               \
  X(C128, 16, 16, "complex128")            \
  X(F8_E4M3FN, 17, 1, "float8_e4m3fn")     \
  X(F8_E5M2, 18, 1, "float8_e5m2")         \
  X(F8_E4M3FNUZ, 19, 1, "float8_e4m3fnuz") \
  X(F8_E5M2FNUZ, 20, 1, "float8_e5m2fnuz")
/* clang-format on */

enum {
  FL_NONE = 0,
#define FL_DTYPE_ENUM(name, value, bytes, text) FL_##name = (value),
  FL_DTYPE_MAP(FL_DTYPE_ENUM)
#undef FL_DTYPE_ENUM
      FL_DTYPE_COUNT
};

/* A set of dtypes, one bit each: FL_BIT(FL_F32) | FL_BIT(FL_I64). */
#define FL_BIT(dtype) ((uint32_t)1 << (dtype))

/* -------------------------------------------------------------- hot structs */

/* A borrowed view of device memory.  Strides are in elements and may be 0
 * (broadcast) or negative; `data` is the element at index 0 of every
 * dimension.  A 0-d tensor has ndim 0; sizes and strides may then be NULL. */
typedef struct fl_tensor {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t ndim;
  uint8_t dtype;
  uint8_t flags; /* 0 */
  uint16_t reserved;
} fl_tensor;
FL_STATIC_ASSERT(tensor_size, sizeof(void*) != 8 || sizeof(fl_tensor) == 32);
FL_STATIC_ASSERT(tensor_dtype, sizeof(void*) != 8 || offsetof(fl_tensor, dtype) == 28);

/* Streams and events are the chip's own objects. */
typedef struct fl_stream_s* fl_stream;
typedef struct fl_event_s* fl_event;

/* Where and as what a piece of work is submitted.
 * tag: the host's name for this launch.  A chip that finds a fault later
 * gives the tag back (fl_stream_api.fault), and the host turns it into
 * operator, shapes and the user's line.  */
typedef struct fl_launch {
  fl_stream stream;
  uint64_t tag;
  int32_t device;
  uint32_t flags; /* FL_LAUNCH_… */
} fl_launch;
FL_STATIC_ASSERT(launch_size, sizeof(void*) != 8 || sizeof(fl_launch) == 24);

/* The same inputs must give the same bits each time. */
#define FL_LAUNCH_DETERMINISTIC 1u
/* Products of F32 (gemm, conv, attention) may be of operands rounded to 10
 * bits behind the point (TF32); they are added in F32 all the same.  Without
 * it F32 means F32.  The user's choice: torch.set_float32_matmul_precision. */
#define FL_LAUNCH_TF32 2u

/* --------------------------------------------------------------- host table
 * What the host offers a chip.  The table outlives the chip. */

enum { FL_LOG_ERROR = 0, FL_LOG_WARNING = 1, FL_LOG_INFO = 2, FL_LOG_DEBUG = 3 };

typedef struct fl_host {
  uint32_t size;    /* sizeof(fl_host) of the host */
  uint32_t version; /* FL_ABI_VERSION of the host */

  /* Write a line to torch-fl's log. */
  void (*log)(int level, const char* text);

  /* The sentence that goes with the status this thread is about to return.
   * Copied; at most 1023 bytes are kept. */
  void (*set_error)(const char* text);

  /* Device memory for one launch, from the host's caching allocator: valid
   * for work that this launch puts on its stream, and given back by itself.
   * Call it only inside an operator entry, with the fl_launch received. */
  fl_status (*scratch)(const fl_launch* launch, size_t bytes, void** out);
} fl_host;

/* ------------------------------------------------------------------ devices */

#define FL_DEVICE_SOFTWARE 1u         /* emulated on the host's processor */
#define FL_DEVICE_HOST_ADDRESSABLE 2u /* fl_memory_api.map works */

/* [DEV-6] The chip writes at most the first `size` bytes, which the caller set;
 * name and identity are not empty, and `storage` has what copy and fill claim. */
typedef struct fl_device_properties {
  uint32_t size;         /* set by the caller; the chip fills at most this much */
  uint32_t flags;        /* FL_DEVICE_… */
  char name[128];        /* what a person calls it: "NVIDIA H200", "sim" */
  char identity[64];     /* the same for the same hardware in each process: PCI address, UUID */
  uint64_t total_memory; /* bytes */
  uint64_t max_alloc;    /* largest single allocation in bytes; 0: total_memory */
  uint32_t alignment;    /* what malloc's addresses are multiples of, >= 64 */
  uint32_t compute_units;
  uint32_t major, minor; /* the vendor's capability version */
  uint32_t storage;      /* dtypes (FL_BIT) that copy and fill take */
  uint32_t arithmetic;   /* dtypes that it computes in without emulation */
} fl_device_properties;

typedef struct fl_device_api {
  uint32_t size;
  uint32_t reserved;

  /* [DEV-1] The number of devices does not change while the process lives.
   * [DEV-2] count and properties start no device: they are cheap, and a
   * process that called only them may fork. */
  fl_status (*count)(int32_t* out);

  /* [DEV-3] A device outside 0 <= device < count gives FL_INVALID.
   * [DEV-4] identity is unique among the chip's devices and stable across
   * processes. */
  fl_status (*properties)(int32_t device, fl_device_properties* out);

  /* Start a device.  Called before its first use; [DEV-5] a second call does
   * nothing and returns FL_OK. */
  fl_status (*open)(int32_t device);
} fl_device_api;

/* ------------------------------------------------------------------- memory */

enum { FL_HOST_TO_DEVICE = 1, FL_DEVICE_TO_HOST = 2, FL_DEVICE_TO_DEVICE = 3 };

typedef struct fl_memory_api {
  uint32_t size;
  uint32_t reserved;

  /* [MEM-1] The address is a multiple of fl_device_properties.alignment.
   * [MEM-2] bytes == 0 gives FL_INVALID.
   * [MEM-3] Exhaustion gives FL_OUT_OF_MEMORY, and smaller requests go on
   * working.  Called rarely: the host caches. */
  fl_status (*malloc)(int32_t device, size_t bytes, void** out);

  /* The host calls it when no work uses the memory.  NULL is allowed. */
  fl_status (*free)(int32_t device, void* address);

  /* Free and total bytes of the device. */
  fl_status (*info)(int32_t device, uint64_t* free_bytes, uint64_t* total_bytes);

  /* Copy bytes; kind says which side is the host's.
   * [MEM-4] Ordered on the launch's stream like an operator.
   * [MEM-5] Host memory from host_alloc is read or written when the stream
   * gets there, and the call returns at once.
   * [MEM-6] Any other host source (FL_HOST_TO_DEVICE) has been read when the
   * call returns: the caller may free it.
   * [MEM-7] Any other host destination is complete when the stream has been
   * synchronized. */
  fl_status (*copy)(const fl_launch* launch, int kind, void* to, const void* from, size_t bytes);

  /* Copy between two devices of this chip, ordered on the launch's stream,
   * which belongs to the source.  NULL: the host stages through its memory.
   * [MEM-8] */
  fl_status (*copy_peer)(const fl_launch* launch, int32_t to_device, void* to, const void* from,
                         size_t bytes);

  /* Host memory that the chip transfers to and from without staging.
   * [MEM-9] Usable with every device of the chip, aligned to 64 bytes. */
  fl_status (*host_alloc)(size_t bytes, void** out);
  fl_status (*host_free)(void* address);

  /* Optional, with FL_DEVICE_HOST_ADDRESSABLE: an address at which host code
   * reads and writes the same bytes as the device, so that an operator that
   * runs on the CPU needs no copy.  Valid until the memory is freed.  The
   * host calls it, and uses the result, only when no work is using the
   * memory.  [MEM-10] */
  fl_status (*map)(int32_t device, void* address, size_t bytes, void** out);
} fl_memory_api;

/* -------------------------------------------------------- streams and events
 * A stream is a queue that works in order.  Two streams are unordered but for
 * events.  */

#define FL_EVENT_TIMING 1u /* elapsed() will be asked */

/* A fault found after its launch returned. */
typedef struct fl_fault {
  uint32_t size; /* set by the caller */
  fl_status status;
  uint64_t tag;   /* fl_launch.tag of the launch that failed; 0 unknown */
  char text[512]; /* what happened, for a person; zero-terminated */
} fl_fault;

typedef struct fl_stream_api {
  uint32_t size;
  uint32_t reserved;

  /* priority: 0 is the default, lower is more urgent; a hint. */
  fl_status (*create)(int32_t device, int32_t priority, fl_stream* out);

  /* [STR-1] Work already queued is still done. */
  fl_status (*destroy)(fl_stream stream);

  /* Wait until the stream is empty.  timeout_ns < 0: without limit.
   * [STR-2] Returns FL_TIMEOUT when the limit passes; the work goes on.
   * [STR-3] With an untaken fault on the stream, returns its status (see
   * fault), each time until it is taken. */
  fl_status (*synchronize)(fl_stream stream, int64_t timeout_ns);

  /* [STR-4] FL_OK when empty, FL_NOT_READY otherwise; never waits.  With an
   * untaken fault, its status. */
  fl_status (*query)(fl_stream stream);

  /* What this stream runs next waits for the event's last record.
   * [STR-5] An event that was never recorded is no wait.
   * [STR-6] The stream may belong to another device of the chip. */
  fl_status (*wait_event)(fl_stream stream, fl_event event);

  /* Take the oldest fault of the stream and forget it.
   * [STR-7] FL_NOT_READY when there is none.
   * [STR-8] A fault stays with its stream: other streams and devices work on,
   * and this stream runs what is queued behind it.  FL_DEVICE_LOST is the
   * exception: it holds for the whole device, for good. */
  fl_status (*fault)(fl_stream stream, fl_fault* out);

  /* Events are reusable: record() again moves them.
   * [EVT-1] A new event counts as done. */
  fl_status (*event_create)(int32_t device, uint32_t flags, fl_event* out);
  fl_status (*event_destroy)(fl_event event);

  /* [EVT-2] The event is done when the work queued before the record is. */
  fl_status (*event_record)(fl_event event, fl_stream stream);
  fl_status (*event_query)(fl_event event); /* FL_OK, FL_NOT_READY */
  fl_status (*event_synchronize)(fl_event event, int64_t timeout_ns);

  /* Milliseconds from one event to the other, measured by the device.
   * [EVT-3] FL_NOT_READY while either is pending.
   * [EVT-4] FL_INVALID when either has no FL_EVENT_TIMING or was never
   * recorded. */
  fl_status (*event_elapsed)(fl_event start, fl_event end, double* milliseconds);
} fl_stream_api;

/* -------------------------------------------------------------- the chip table */

struct fl_op_api; /* fl/ops.h */

/* The host takes a lock around launches, one a device. */
#define FL_CHIP_SERIAL_LAUNCH 1u

typedef struct fl_chip {
  uint32_t size;       /* sizeof(fl_chip) of the chip */
  uint32_t version;    /* FL_ABI_VERSION that the chip was written for */
  const char* name;    /* [CHP-1] lower-case letters, digits and '_', a letter first: "sim" */
  const char* release; /* the chip library's own version, for people and cache keys */
  uint32_t flags;      /* FL_CHIP_… */
  uint32_t reserved;
  const fl_device_api* device;
  const fl_memory_api* memory;
  const fl_stream_api* stream;
  const struct fl_op_api* op;
  const void* comm;  /* reserved for collectives: NULL in version 1 */
  const void* graph; /* reserved for graph compilers: NULL in version 1 */

  /* Optional: experimental or chip-specific tables by name and version,
   * outside the stable ABI.  [CHP-2] An unknown name gives NULL. */
  const void* (*extension)(const char* name, uint32_t version);
} fl_chip;

/* The one exported symbol.  Returns the chip's constant table, or NULL after
 * set_error() when it cannot work with this host.
 * [CHP-3] Starts no device and no thread, and may be called again: it returns
 * the same table.
 * [CHP-4] A host of the same major version is never refused for its minor. */
typedef const fl_chip* (*fl_chip_entry_fn)(uint32_t host_version, const fl_host* host);
#define FL_CHIP_ENTRY_NAME "fl_chip_entry"

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FL_CHIP_H */
