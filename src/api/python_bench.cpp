// What python/gnomon/_bench/overhead.py measures the host's part of a call with.
#include <memory>

#include "api/for_python.hpp"
#include "api/handles.hpp"

using namespace gnomon;
using namespace gnomon::capi;

// From here to gnomon_idle_end(*out) planned calls of the problem do the host's part alone: Engine::idle_device. A null
// `*out`: that cannot be had, and calls go on as before.
GNOMON_FOR_PYTHON gnomon_status gnomon_idle_begin(gnomon_engine* engine, const char* problem, void** out) {
  return guarded([&] {
    *require(out, "out") = nullptr;
    auto idle = require(engine, "engine")->value.idle_device(parse_problem(require(problem, "problem")));
    if (idle) *out = new std::shared_ptr<void>(std::move(idle));
  });
}

GNOMON_FOR_PYTHON void gnomon_idle_end(void* idle) { delete static_cast<std::shared_ptr<void>*>(idle); }
