// One planning's bench: candidates enter it, are judged, meet the incumbent in pairs, and every fate is written down.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plan/measure.hpp"
#include "plan/planner.hpp"
#include "plan/statistics.hpp"

namespace gnomon {

// A candidate that is prepared and passed its check.
struct Contender {
  std::size_t report = 0;  // index into Contest::reports
  std::unique_ptr<Plan> plan;
  int runs = 0;          // per sample, for the clock; 0: never timed
  double seconds = 0;    // of one pass, as last seen
  bool checked = false;  // no run since the last check
};

enum class Entry { ready, out, no_memory };
enum class Duel { faster, slower, tie, undecided, unfinished, challenger_out, incumbent_out };

class Contest {
 public:
  // `whole` is the problem to be planned, `timed` the part of it that `bench` holds. No sample starts that should end
  // after `deadline`.
  Contest(Backend& backend, Clock& clock, Workbench& bench, const Problem& whole, const Problem& timed,
          const PlannerOptions& options, double started, double deadline);

  // The budget is spent, the caller cancelled, or there is no room for one more candidate: a check, a warm-up and one
  // pair, were it as slow as `incumbent`.
  bool over(const Contender& incumbent) const;
  std::string why_over() const;
  double now() const { return clock_.now(); }
  double deadline() const { return deadline_; }

  const CandidateReport* met(const Candidate& candidate) const;  // null: never, or only put off for lack of time
  std::size_t report_on(const Candidate& candidate, const std::string& group);

  // Whether timing a challenger on the part tells how it runs on the whole; if not, it is refused. (A safe plan need
  // not.)
  bool shows(const Candidate& candidate, const std::string& group);

  // Refuses, binds, judges and (when `timed`) warms up. no_memory leaves no trace in the reports when `retry`: others
  // that are alive may be what fills the memory.
  Entry enroll(const Candidate& candidate, const std::string& group, bool timed, bool retry, Contender& contender);
  // Judges again what has run since it was last judged.
  bool recheck(Contender& contender);

  // Interleaved pairs until a look decides, the pairs are used up, or `until` passes (the first few pairs may go up to
  // the deadline).
  Duel duel(Contender& incumbent, Contender& challenger, double until);
  // Successive halving: rounds over everybody, then the slower half leaves. At most two stay.
  void screen(Contender& incumbent, std::vector<Contender>& challengers, double until);

  CandidateReport& report(const Contender& contender) { return reports[contender.report]; }
  const Candidate& candidate(const Contender& contender) const { return reports[contender.report].candidate; }
  void tell(const std::string& now) const;
  std::int64_t runs() const { return meter_.runs(); }

  // Sorts samples into the reports; call when planning ends.
  void summarize();

  std::vector<CandidateReport> reports;  // in the order they were met

 private:
  enum class Fate { fine, no_memory, failed };
  Fate guarded(std::size_t report, const char* doing, const std::function<void()>& action);
  bool judge(Contender& contender, const char* when);
  bool sample(Contender& contender, int runs, double& seconds);
  bool round(Contender& incumbent, std::vector<Contender>& challengers, std::vector<std::vector<double>>& ratios,
             bool reversed);
  void halve(std::vector<Contender>& challengers, std::vector<std::vector<double>>& ratios);
  int apart_from(const Contender& incumbent, double fastest, double slowest) const;
  bool time_for(double seconds, double until) const;
  void note_interval(CandidateReport& report, std::span<const double> ratios) const;

  Backend& backend_;
  Clock& clock_;
  Meter meter_;
  const Problem& whole_;
  const Problem& timed_;
  const PlannerOptions& options_;
  double started_, deadline_;
  std::vector<std::vector<double>> samples_;  // per report: seconds of one pass
};

}  // namespace gnomon
