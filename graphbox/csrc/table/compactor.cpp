#include "table/compactor.h"

#include <unistd.h>

#include <utility>

namespace graphbox {

Compactor::Compactor(Step step) : step_(std::move(step)), owner_(::getpid()), thread_(&Compactor::run, this) {}

Compactor::~Compactor() {
  if (owner_ != ::getpid() && thread_.joinable()) {
    thread_.detach();  // a fork: the thread is the parent's
  }
  close();
}

void Compactor::close() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Compactor::wake() {
  {
    const std::lock_guard lock(mutex_);
    has_work_ = true;
    ++wakes_;
  }
  changed_.notify_all();
}

bool Compactor::await_step() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [this, before = steps_] { return steps_ != before; });
  return has_work_ && !is_closed_ && owner_ == ::getpid();
}

void Compactor::await_rest() {
  std::unique_lock lock(mutex_);
  wait_until(lock, [] { return false; });
}

void Compactor::wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  changed_.wait(lock, [&] { return !has_work_ || is_closed_ || owner_ != ::getpid() || done(); });
}

void Compactor::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_closed_ || has_work_; });
    if (is_closed_) {
      return;
    }
    const std::uint64_t wakes = wakes_;  // who wakes this during the step may have work that the step did not see
    lock.unlock();
    const bool has_more = step_();
    lock.lock();
    ++steps_;
    has_work_ = has_more || wakes_ != wakes;
    changed_.notify_all();
  }
}

}  // namespace graphbox
