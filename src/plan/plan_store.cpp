#include "plan/plan_store.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "plan/store_io.hpp"
#include "plan/store_text.hpp"

namespace gnomon {
namespace {

namespace fs = std::filesystem;

std::string key_of(const PlanRecord& record) { return to_string(record.problem) + " | " + record.constraints; }

bool same_environment(const Environment& a, const Environment& b) { return a.device == b.device && a.facts == b.facts; }

// "isa is 'avx2' there, 'avx512' here": the facts that differ.
std::string difference(const Environment& there, const Environment& here) {
  std::string text;
  const auto add = [&text](const std::string& name, const std::string& a, const std::string& b) {
    if (a != b) text += fmt::format("{}{} is '{}' there, '{}' here", text.empty() ? "" : "; ", name, a, b);
  };
  add("device", there.device, here.device);
  std::map<std::string, std::string> names = there.facts;
  names.insert(here.facts.begin(), here.facts.end());
  const auto fact = [](const Environment& environment, const std::string& name) {
    const auto found = environment.facts.find(name);
    return found == environment.facts.end() ? std::string() : found->second;
  };
  for (const auto& [name, value] : names) add(name, fact(there, name), fact(here, name));
  return text;
}

std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

fs::path file_name(const Environment& environment) {
  std::string stem;
  for (const char c : environment.device) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (plain) stem += c;
    if (!plain && !stem.empty() && stem.back() != '-') stem += '-';
  }
  while (!stem.empty() && stem.back() == '-') stem.pop_back();
  if (stem.size() > 64) stem.resize(64);
  std::uint64_t hash = fnv1a(environment.device);
  for (const auto& [name, value] : environment.facts) hash = fnv1a(value + "\n", fnv1a(name + "=", hash));
  return fmt::format("{}-{:08x}.json", stem.empty() ? "device" : stem, static_cast<std::uint32_t>(hash ^ (hash >> 32)));
}

}  // namespace

fs::path default_plan_directory() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? fs::path(value) : fs::path();
  };
  if (fs::path own = set("GNOMON_PLAN_DIR"); !own.empty()) return own;
  if (fs::path cache = set("XDG_CACHE_HOME"); !cache.empty()) return cache / "gnomon" / "plans";
  if (fs::path home = set("HOME"); !home.empty()) return home / ".cache" / "gnomon" / "plans";
  return {};
}

PlanStore::PlanStore(fs::path directory, Environment environment)
    : directory_(std::move(directory)), environment_(std::move(environment)) {
  if (!directory_.empty()) file_ = directory_ / file_name(environment_);
}

// The file's records, or nothing where there is no usable file. `broken`: there is one, and it cannot be used.
// Throws std::system_error when it cannot be read now, and may be good.
PlanStore::Records PlanStore::read(bool& broken) const {
  broken = false;
  Records records;
  std::string why;
  try {
    const std::optional<std::string> text = store_io::read_file(file_);
    if (!text) return records;
    StoreFile file = parse_store_file(*text);
    if (!same_environment(file.environment, environment_)) {
      throw_environment("it belongs to another environment: {}", difference(file.environment, environment_));
    }
    for (PlanRecord& record : file.records) {
      std::string key = key_of(record);
      records.insert_or_assign(std::move(key), std::move(record));
    }
    return records;
  } catch (const std::system_error&) {
    throw;
  } catch (const std::exception& error) {
    why = error.what();
  }
  broken = true;
  log::warn_once("plan store read " + file_.string(),
                 fmt::format("plan file {} is not used ({}); its problems are planned anew", file_.string(), why));
  return {};
}

// Others may have written meanwhile; a stat tells without reading.
void PlanStore::refresh() {
  if (file_.empty()) return;
  const store_io::Stamp stamp = store_io::stamp_of(file_);
  if (!std::exchange(looked_, true) && !stamp.exists) note_other_environments();
  if (stamp == stamp_) return;
  try {
    bool broken = false;
    records_ = read(broken);
    stamp_ = stamp;
  } catch (const std::system_error& error) {  // looked at again next time
    log::warn_once("plan store open " + file_.string(), fmt::format("stored plans are not used: {}", error.what()));
  }
}

void PlanStore::note_other_environments() const {
  if (!log::enabled(log::Level::info)) return;
  std::error_code ignored;
  int others = 0;
  for (const auto& entry : fs::directory_iterator(directory_, ignored)) others += entry.path().extension() == ".json";
  if (others == 0) return;
  log::write(log::Level::info,
             fmt::format("no plans for this environment ({}); {} other environments' plans in {} are not used",
                         environment_.device, others, directory_.string()));
}

// Lock, read, merge, write aside, rename. False when the file could not be written: one warning, memory goes on.
bool PlanStore::update(const std::function<void(Records&)>& change) {
  if (file_.empty()) return false;
  try {
    fs::create_directories(directory_);
    const store_io::Lock lock(file_);
    store_io::remove_leftovers(file_);
    bool broken = false;
    Records merged = read(broken);
    if (broken) store_io::put_aside(file_);
    change(merged);
    store_io::replace(file_, store_text(environment_, merged));
    records_ = std::move(merged);
    stamp_ = store_io::stamp_of(file_);
    looked_ = true;
    return true;
  } catch (const std::exception& error) {
    log::warn_once("plan store write " + file_.string(),
                   fmt::format("plans cannot be saved ({}); they are kept in memory only", error.what()));
    return false;
  }
}

std::optional<PlanRecord> PlanStore::find(const Problem& problem, const Constraints& constraints) {
  const std::lock_guard guard(mutex_);
  refresh();
  const std::string key = to_string(problem) + " | " + constraints.to_string();
  for (const Records* records : {&unsaved_, &records_}) {
    if (const auto found = records->find(key); found != records->end()) return found->second;
  }
  return std::nullopt;
}

PlanStore::Records PlanStore::all() {
  refresh();
  Records records = unsaved_;
  records.insert(records_.begin(), records_.end());
  return records;
}

std::optional<PlanRecord> PlanStore::nearest(const Problem& problem, const Constraints& constraints) {
  const std::lock_guard guard(mutex_);
  const std::string demands = constraints.to_string();
  std::optional<PlanRecord> best;
  double best_distance = INFINITY;
  for (const auto& [key, record] : all()) {
    Problem moved = record.problem;
    moved.batch = problem.batch;
    moved.seq = problem.seq;
    if (!(moved == problem) || record.constraints != demands) continue;
    const auto step = [](std::int64_t a, std::int64_t b) {
      return std::log2(static_cast<double>(std::max<std::int64_t>(a, 1)) /
                       static_cast<double>(std::max<std::int64_t>(b, 1)));
    };
    const double distance =
        std::hypot(step(record.problem.batch, problem.batch), step(record.problem.seq, problem.seq));
    if (distance < best_distance) {
      best_distance = distance;
      best = record;
    }
  }
  return best;
}

void PlanStore::put(const PlanRecord& record) {
  const std::lock_guard guard(mutex_);
  PlanRecord stored = record;
  stored.made_under = environment_.notes;
  unsaved_.insert_or_assign(key_of(stored), std::move(stored));
  save_unsaved();
}

void PlanStore::save_unsaved() {
  const bool saved = update([this](Records& records) {
    for (const auto& [key, record] : unsaved_) records.insert_or_assign(key, record);
  });
  if (saved) unsaved_.clear();
}

std::size_t PlanStore::forget(const std::optional<Problem>& problem) {
  const std::lock_guard guard(mutex_);
  const auto gone = [&](const auto& entry) { return !problem || entry.second.problem == *problem; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(all(), gone));
  if (count == 0) return 0;
  const bool on_disk = std::ranges::any_of(records_, gone);
  std::erase_if(unsaved_, gone);
  if (on_disk && !update([&](Records& records) { std::erase_if(records, gone); })) {
    throw_environment("{} cannot be rewritten, so its plans cannot be forgotten", file_.string());
  }
  return count;
}

std::vector<PlanRecord> PlanStore::list() {
  const std::lock_guard guard(mutex_);
  std::vector<PlanRecord> records;
  for (auto& [key, record] : all()) records.push_back(record);
  return records;
}

std::string PlanStore::export_json() {
  const std::lock_guard guard(mutex_);
  return store_text(environment_, all());
}

std::size_t PlanStore::import_json(std::string_view text, bool force) {
  StoreFile file;
  try {
    file = parse_store_file(text);
  } catch (const Error& error) {
    throw_caller("plans cannot be imported: {}", error.what());
  }
  const bool same = same_environment(file.environment, environment_);
  if (!same && !force) {
    throw_caller(
        "plans were made in another environment: {}; imported by force (`gnomon plans import --anyway`) their choices "
        "are "
        "checked here before use",
        difference(file.environment, environment_));
  }
  const std::lock_guard guard(mutex_);
  for (PlanRecord& record : file.records) {
    if (!same) record.made_under = {{"imported from", file.environment.device}};
    std::string key = key_of(record);
    unsaved_.insert_or_assign(std::move(key), std::move(record));
  }
  save_unsaved();
  return file.records.size();
}

}  // namespace gnomon
