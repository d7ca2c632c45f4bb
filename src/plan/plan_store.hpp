// Plans that survive the process: one JSON file per environment in a folder that many processes may share.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/backend.hpp"
#include "plan/plan_record.hpp"
#include "plan/store_io.hpp"

namespace gnomon {

// $GNOMON_PLAN_DIR, else $XDG_CACHE_HOME/gnomon/plans, else $HOME/.cache/gnomon/plans, else empty (memory only).
std::filesystem::path default_plan_directory();

// Safe to share between threads; the file is safe to share between processes.
class PlanStore {
 public:
  // An empty directory keeps plans in memory only. Nothing is read or created until it is needed.
  PlanStore(std::filesystem::path directory, Environment environment);

  std::optional<PlanRecord> find(const Problem& problem, const Constraints& constraints);
  // The planned problem with the same config, dtype, mask, device and constraints whose B and S are nearest
  // (in log2 distance); nothing when none.
  std::optional<PlanRecord> nearest(const Problem& problem, const Constraints& constraints);
  // Merges with what others wrote meanwhile (lock, read, merge, write aside, rename). A failure to write is one
  // warning; the record stays in memory. The record's made_under becomes this environment's notes.
  void put(const PlanRecord& record);
  // All when empty; returns how many. Environment error when the file cannot be rewritten.
  std::size_t forget(const std::optional<Problem>& problem);
  std::vector<PlanRecord> list();

  std::string export_json();  // environment and entries
  // All or nothing. Caller error: malformed, or another environment (`force` takes the choices; they are re-checked
  // before use).
  std::size_t import_json(std::string_view text, bool force);

  const std::filesystem::path& file() const { return file_; }
  const Environment& environment() const { return environment_; }

 private:
  using Records = std::map<std::string, PlanRecord>;  // by problem and constraints

  Records read(bool& broken) const;
  void refresh();
  Records all();
  void note_other_environments() const;
  bool update(const std::function<void(Records&)>& change);
  void save_unsaved();

  std::filesystem::path directory_, file_;
  Environment environment_;
  std::mutex mutex_;
  store_io::Stamp stamp_;  // of the file when records_ were read
  bool looked_ = false;
  Records records_;  // the file's
  Records unsaved_;  // memory's: what could not be written (yet)
};

// Parses a store file's text. Throws Error(environment) with the reason on anything malformed: never crashes (fuzzed).
struct StoreFile {
  Environment environment;
  std::vector<PlanRecord> records;
};
StoreFile parse_store_file(std::string_view text);

}  // namespace gnomon
