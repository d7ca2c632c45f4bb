// Time, passed in so that tests can fake it.
#pragma once

namespace gnomon {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() = 0;  // seconds, monotonic
};

Clock& steady_clock();

}  // namespace gnomon
