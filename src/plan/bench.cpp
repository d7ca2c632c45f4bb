#include "plan/bench.hpp"

#include <algorithm>
#include <cmath>
#include <new>

#include "core/error.hpp"
#include "plan/calibration.hpp"

namespace gnomon {

Bench open_bench(Backend& backend, const Call& call, Problem part) {
  for (;;) {
    std::string reason;
    try {
      return {part, backend.open_workbench(part, prefix_of(call, part.batch, part.seq))};
    } catch (const std::bad_alloc&) {
      reason = "out of memory";
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::environment) throw;
      reason = error.what();
    }
    const std::string tried = to_string(part);
    if (!shrink(part)) throw_environment("not even the plain path of {} fits in memory: {}", tried, reason);
  }
}

Contract judging_contract(const Backend& backend, const Candidate& candidate, const Problem& problem,
                          std::int64_t shown) {
  Contract contract = problem.contract;
  if (backend.approximations(candidate).empty()) return contract;
  const double n = std::max(2.0, static_cast<double>(shown));
  contract.headroom *= std::sqrt(std::log(n) / std::log(1000.0 * static_cast<double>(problem.elements())));
  return contract;
}

std::string describe_failure(const Verdict& verdict, const Contract& contract) {
  if (!verdict.fault.empty()) return verdict.fault;
  if (verdict.first_bad < 0) {
    return fmt::format("worst element at {:.3g} of the contract's limit, headroom is {:.3g}", verdict.worst,
                       contract.headroom);
  }
  return fmt::format("{} of {} elements out of contract, worst {:.3g} of the limit; element {} is {:g}, reference {:g}",
                     verdict.out_of_contract, verdict.elements, verdict.worst, verdict.first_bad, verdict.bad_value,
                     verdict.bad_reference);
}

void reject(CandidateReport& its, const std::string& when, const Verdict& verdict, const Contract& contract) {
  constexpr Contract usual;
  const bool tight = contract.abs < usual.abs || contract.rel < usual.rel ||
                     (its.approximations.empty() && contract.headroom < usual.headroom);
  const bool asked_too_much = verdict.fault.empty() && (tight || !its.approximations.empty());
  its.outcome = Outcome::rejected;
  its.reason = fmt::format("{}: {}", when, describe_failure(verdict, contract));
  its.blame = asked_too_much ? ErrorKind::caller : ErrorKind::internal;
}

}  // namespace gnomon
