#include "bridge/autograd_threads.h"

#include <pthread.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "bridge/bridge.h"
#include "bridge/guard.h"

namespace fl::bridge {

namespace {

constexpr std::chrono::seconds kLimit{10};  // a thread that hangs must not hang the exit

std::atomic<bool> count_asked{false};

// A step of a backward pass that does nothing, on the thread of a device.
struct Nothing final : torch::autograd::Node {
  explicit Nothing(c10::Device device) {
    add_input_metadata(at::TensorOptions().device(device).dtype(at::kFloat),
                       torch::autograd::SymIntSmallVec{c10::SymInt(0)},
                       /*is_tensor_subclass=*/false, /*is_nested=*/false, at::kFloat);
  }
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

// A thread does one step after another, and drops the backward pass of a step
// before it takes the next: once it has done ours, it is rid of all others.
// Ours comes from a thread that Python does not know, so that dropping it takes
// no interpreter lock.
void pass_through(torch::autograd::Engine& engine) {
  for (const Device& d : devices())
    if (is_open(d.index)) {
      auto step = c10::make_intrusive<Nothing>(c10::Device(kDevice, static_cast<c10::DeviceIndex>(d.index)));
      // The engine asks the gradient for its stream, so there has to be one; without elements it costs no
      // memory.
      Tensor gradient = empty_on(step->input_metadata(0).device(), {0}, {}, at::kFloat);
      engine.execute({torch::autograd::Edge(step, 0)}, {gradient}, /*keep_graph=*/false,
                     /*create_graph=*/false,
                     /*accumulate_grad=*/true);
    }
}

}  // namespace

void note_device_count_asked() noexcept {
  if (count_asked.load(std::memory_order_relaxed) || count_asked.exchange(true)) return;
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { count_asked = false; });  // threads do not survive a fork
  });
}

void settle_autograd_threads() noexcept {
  if (!count_asked) return;
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  std::promise<void> done;
  std::future<void> waited = done.get_future();
  try {
    auto& engine = torch::autograd::Engine::get_default_engine();
    // A thread that is being started takes the interpreter lock too. Whether there
    // is one cannot be asked; but this returns only when every thread is up. (None
    // of them is told its device before its first step, so they cannot be counted.)
    engine.initialize_device_threads_pool();
    std::thread([&engine, done = std::move(done)]() mutable {
      try {
        pass_through(engine);
        done.set_value();
      } catch (...) {
        done.set_exception(std::current_exception());
      }
    }).detach();
    if (waited.wait_until(limit) == std::future_status::ready) return waited.get();
    log(FL_LOG_WARNING, "at exit: a thread of autograd is still busy");
  } catch (const std::exception& error) {
    // A forked child of a process that had such threads: there are none here.
    log(FL_LOG_DEBUG, std::string("at exit: autograd's threads are not waited for: ") + error.what());
  }
}

}  // namespace fl::bridge
