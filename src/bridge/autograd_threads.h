// The threads of PyTorch's autograd engine, at the end of the process.
//
// The engine starts a thread for each device at the first backward pass.  Such
// a thread takes Python's interpreter lock when it starts, and again when it
// drops the last reference to a finished backward pass, shortly after
// backward() has returned.  One that waits for the lock when the interpreter
// goes away aborts the process ("terminate called without an active exception").
#pragma once

namespace fl::bridge {

// For the guard: the engine asks for the number of devices before it starts threads.
void note_device_count_asked() noexcept;

// Waits until each of these threads has started and is idle; seconds at most.
// Called once, at exit, without the interpreter lock.
void settle_autograd_threads() noexcept;

}  // namespace fl::bridge
