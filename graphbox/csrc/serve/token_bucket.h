// Rate limit of events: a bucket of tokens that refills with time, one taken by each event.
#pragma once

#include <algorithm>
#include <chrono>

namespace graphbox::serve {

class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  // At most `burst` events at once, `per_second` in the long run.
  TokenBucket(double burst, double per_second)
      : burst_(burst), per_second_(per_second), tokens_(burst), refilled_(Clock::now()) {}

  // False: the limit is exceeded.
  bool take() {
    if (tokens_ < 1) {  // the clock is read only here: a client within its burst costs a subtraction
      const Clock::time_point now = Clock::now();
      const double seconds = std::chrono::duration<double>(now - refilled_).count();
      tokens_ = std::min(burst_, tokens_ + seconds * per_second_);
      refilled_ = now;
    }
    if (tokens_ < 1) {
      return false;
    }
    tokens_ -= 1;
    return true;
  }

  // An event is not counted for what happened beside it.
  void give_back() { tokens_ = std::min(burst_, tokens_ + 1); }

 private:
  double burst_;
  double per_second_;
  double tokens_;
  Clock::time_point refilled_;
};

}  // namespace graphbox::serve
