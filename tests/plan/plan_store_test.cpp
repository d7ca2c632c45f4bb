#include "plan/plan_store.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/error.hpp"
#include "core/log.hpp"
#include "plan/records.hpp"
#include "support/temporary_directory.hpp"

namespace gnomon {
namespace {

namespace fs = std::filesystem;
using fake::record_of;
using testing::HasSubstr;

Environment environment(const std::string& isa = "avx2") {
  return {"Some CPU (model 1)", {{"isa", isa}, {"cores", "2"}}, {{"driver", "1"}}};
}

std::string read_all(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void write_all(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

class PlanStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    log::set_sink([this](log::Level level, std::string_view text) {
      if (level == log::Level::warn) warnings_.emplace_back(text);
    });
  }
  void TearDown() override { log::set_sink({}); }

  test::TemporaryDirectory temporary_;
  fs::path folder_ = temporary_.path() / "a" / "plans";
  std::vector<std::string> warnings_;
};

TEST_F(PlanStoreTest, NothingIsCreatedUntilNeededAndPlansSurvive) {
  const PlanRecord record = record_of("b64 s100");
  PlanStore store(folder_, environment());
  EXPECT_FALSE(store.find(record.problem, {}));
  EXPECT_FALSE(fs::exists(folder_));
  store.put(record);
  ASSERT_TRUE(store.find(record.problem, {}));
  PlanStore later(folder_, environment());
  const auto found = later.find(record.problem, {});
  ASSERT_TRUE(found);
  PlanRecord expected = record;
  expected.made_under = environment().notes;
  EXPECT_EQ(nlohmann::json(*found), nlohmann::json(expected));
  EXPECT_FALSE(later.find(parse_problem("b65 s100"), {}));
  EXPECT_FALSE(later.find(record.problem, {.fp32_only = true}));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PlanStoreTest, TheFileReadsWell) {
  PlanStore store(folder_, environment());
  store.put(record_of("b64 s100"));
  EXPECT_TRUE(store.file().filename().string().starts_with("Some-CPU-model-1-")) << store.file();
  const std::string text = read_all(store.file());
  EXPECT_THAT(text, HasSubstr("  \"winner\": \"path=fast slices=4\",\n"));
  EXPECT_THAT(text, HasSubstr("\n    {\"candidate\":\"path=bad slices=1\",\"outcome\":\"rejected\""));
  EXPECT_LT(text.find("\"problem\""), text.find("\"candidates\""));
  store.put(record_of("b64 s100"));
  EXPECT_EQ(read_all(store.file()), text);  // a stable order
}

TEST_F(PlanStoreTest, AnotherEnvironmentIsAMissAndItsFileStays) {
  PlanStore store(folder_, environment());
  store.put(record_of("b64 s100"));
  PlanStore other(folder_, environment("avx512"));
  EXPECT_NE(other.file(), store.file());
  EXPECT_FALSE(other.find(parse_problem("b64 s100"), {}));
  other.put(record_of("b64 s100"));
  EXPECT_TRUE(fs::exists(store.file()));
  EXPECT_TRUE(fs::exists(other.file()));
  Environment newer_driver = environment();
  newer_driver.notes["driver"] = "2";
  PlanStore same(folder_, newer_driver);
  const auto found = same.find(parse_problem("b64 s100"), {});
  ASSERT_TRUE(found);
  EXPECT_NE(found->made_under, newer_driver.notes);  // tells the engine to judge before use
}

TEST_F(PlanStoreTest, ABrokenFileIsAMissWithOneWarningAndIsPutAside) {
  PlanStore source(folder_, environment());
  source.put(record_of("b64 s100"));
  const std::string good = read_all(source.file());
  std::string foreign = good, other_format = good, not_utf8 = good;
  foreign.replace(foreign.find("avx2"), 4, "avx9");
  other_format.replace(other_format.find("plans\": 1"), 9, "plans\": 2");
  not_utf8.replace(not_utf8.find("fast"), 1, "\xff");
  const std::map<std::string, std::string> broken = {{"empty", ""},
                                                     {"truncated", good.substr(0, good.size() / 2)},
                                                     {"binary", std::string("\0\x7f"
                                                                            "ELF\xff\xfe\0",
                                                                            8)},
                                                     {"list", "[]"},
                                                     {"number", "7"},
                                                     {"other json", "{\"name\": \"x\"}"},
                                                     {"deep", std::string(200000, '[')},
                                                     {"foreign", foreign},
                                                     {"other format", other_format},
                                                     {"not utf8", not_utf8},
                                                     {"trailing", good + "x"}};
  for (const auto& [name, text] : broken) {
    const fs::path folder = temporary_.path() / name;
    PlanStore store(folder, environment());
    fs::create_directories(folder);
    write_all(store.file(), text);
    warnings_.clear();
    EXPECT_FALSE(store.find(parse_problem("b64 s100"), {})) << name;
    EXPECT_FALSE(store.find(parse_problem("b64 s100"), {})) << name;
    EXPECT_TRUE(store.list().empty()) << name;
    store.put(record_of("b2 s100"));
    EXPECT_EQ(warnings_.size(), 1u) << name;
    EXPECT_THAT(warnings_.at(0), HasSubstr(store.file().string())) << name;
    EXPECT_EQ(read_all(store.file().string() + ".broken"), text) << name;
    EXPECT_TRUE(PlanStore(folder, environment()).find(parse_problem("b2 s100"), {})) << name;
  }
}

// Only the first `count` numbers that are free can be opened meanwhile.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    const int free = ::open("/dev/null", O_RDONLY);
    ::close(free);
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(free) + count, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(PlanStoreTest, AFileThatCannotBeOpenedNowIsNotTakenForABrokenOne) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined-behaviour sanitizer looks at an exception's type through a pipe, for which no "
                  "descriptor is left";
#endif
  PlanStore writer(folder_, environment());
  writer.put(record_of("b64 s100"));
  const std::string good = read_all(writer.file());
  PlanStore store(folder_, environment());
  {
    const FewDescriptors none(0);
    EXPECT_FALSE(store.find(parse_problem("b64 s100"), {}));
  }
  EXPECT_TRUE(store.find(parse_problem("b64 s100"), {})) << "it is looked at again";
  {
    const FewDescriptors lock_alone(1);
    store.put(record_of("b32 s100"));
  }
  EXPECT_EQ(read_all(store.file()), good);
  EXPECT_FALSE(fs::exists(store.file().string() + ".broken"));
  EXPECT_EQ(warnings_.size(), 2u);
  store.put(record_of("b16 s100"));
  EXPECT_EQ(PlanStore(folder_, environment()).list().size(), 3u);
}

TEST_F(PlanStoreTest, AFolderThatCannotBeWrittenMeansMemoryAndOneWarning) {
  const fs::path file = temporary_.path() / "file";
  write_all(file, "in the way");
  for (const fs::path& folder : {file / "plans", fs::path("/proc/gnomon/plans")}) {
    warnings_.clear();
    PlanStore store(folder, environment());
    store.put(record_of("b64 s100"));
    store.put(record_of("b32 s100"));
    EXPECT_TRUE(store.find(parse_problem("b64 s100"), {}));
    EXPECT_EQ(store.list().size(), 2u);
    EXPECT_EQ(warnings_.size(), 1u);
    EXPECT_EQ(store.forget(parse_problem("b64 s100")), 1u);
    EXPECT_FALSE(store.find(parse_problem("b64 s100"), {}));
  }
  PlanStore memory({}, environment());
  warnings_.clear();
  memory.put(record_of("b64 s100"));
  EXPECT_TRUE(memory.find(parse_problem("b64 s100"), {}));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(PlanStoreTest, WhereAFolderStandsInPlaceOfTheFile) {
  PlanStore store(folder_, environment());
  fs::create_directories(store.file());
  EXPECT_FALSE(store.find(parse_problem("b64 s100"), {}));
  store.put(record_of("b64 s100"));
  EXPECT_TRUE(PlanStore(folder_, environment()).find(parse_problem("b64 s100"), {}));
}

TEST_F(PlanStoreTest, TheDefaultFolderFollowsTheEnvironment) {
  const char* const names[] = {"GNOMON_PLAN_DIR", "XDG_CACHE_HOME", "HOME"};
  std::map<std::string, std::string> before;
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) before[name] = value;
    unsetenv(name);
  }
  EXPECT_TRUE(default_plan_directory().empty());
  setenv("HOME", "/h", 1);
  EXPECT_EQ(default_plan_directory(), "/h/.cache/gnomon/plans");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(default_plan_directory(), "/x/gnomon/plans");
  setenv("GNOMON_PLAN_DIR", "/g", 1);
  EXPECT_EQ(default_plan_directory(), "/g");
  for (const char* name : names) {
    before.contains(name) ? setenv(name, before[name].c_str(), 1) : unsetenv(name);
  }
}

TEST_F(PlanStoreTest, NearestIsByTheLogarithmOfBatchAndLength) {
  PlanStore store(folder_, environment());
  for (const char* problem :
       {"b1 s100", "b64 s100", "b64 s1000", "b70 s100 d256", "b70 s100 f16", "b70 s100 mask", "b70 s100 abs=0.1"}) {
    store.put(record_of(problem));
  }
  struct Row {
    const char* asked;
    const char* nearest;
  };
  for (const Row& row :
       {Row{"b70 s100", "b64 s100"}, Row{"b6 s100", "b1 s100"}, Row{"b9 s100", "b64 s100"},
        Row{"b64 s400", "b64 s1000"}, Row{"b64 s300", "b64 s100"}, Row{"b1 s1 d256", "b70 s100 d256"}}) {
    const auto found = store.nearest(parse_problem(row.asked), {});
    ASSERT_TRUE(found) << row.asked;
    EXPECT_EQ(found->problem, parse_problem(row.nearest)) << row.asked;
  }
  EXPECT_FALSE(store.nearest(parse_problem("b64 s100 bi"), {}));
  EXPECT_FALSE(store.nearest(parse_problem("b64 s100"), {.threads = 1}));
}

TEST_F(PlanStoreTest, TwoStoresSeeEachOthersPlans) {
  PlanStore one(folder_, environment()), two(folder_, environment());
  one.put(record_of("b1 s1"));
  EXPECT_TRUE(two.find(parse_problem("b1 s1"), {}));
  two.put(record_of("b2 s1"));
  EXPECT_TRUE(one.find(parse_problem("b2 s1"), {}));
  EXPECT_EQ(one.forget(parse_problem("b1 s1")), 1u);
  EXPECT_FALSE(two.find(parse_problem("b1 s1"), {}));
  EXPECT_EQ(two.forget(parse_problem("b1 s1")), 0u);
  EXPECT_EQ(two.forget(std::nullopt), 1u);
  EXPECT_TRUE(one.list().empty());
}

TEST_F(PlanStoreTest, ExportAndImport) {
  PlanStore store(folder_, environment());
  store.put(record_of("b1 s1"));
  store.put(record_of("b2 s1"));
  const std::string text = store.export_json();
  PlanStore same(temporary_.path() / "same", environment());
  EXPECT_EQ(same.import_json(text, false), 2u);
  EXPECT_EQ(same.find(parse_problem("b2 s1"), {})->made_under, environment().notes);
  EXPECT_EQ(same.export_json(), text);

  PlanStore other(temporary_.path() / "other", environment("neon"));
  try {
    other.import_json(text, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::caller);
    EXPECT_THAT(error.what(), HasSubstr("isa is 'avx2' there, 'neon' here"));
  }
  EXPECT_TRUE(other.list().empty());
  EXPECT_EQ(other.import_json(text, true), 2u);
  EXPECT_NE(other.find(parse_problem("b2 s1"), {})->made_under, other.environment().notes);
  EXPECT_THROW(other.import_json(text.substr(0, 100), true), Error);
}

TEST_F(PlanStoreTest, ThreadsMayShareOneStoreAndOneFile) {
  PlanStore shared(folder_, environment());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      PlanStore own(folder_, environment());
      for (int i = 1; i <= 3; ++i) {
        const std::string problem = fmt::format("b{} s1", 8 * i + t);
        (t % 2 ? shared : own).put(record_of(problem));
        EXPECT_TRUE(shared.find(parse_problem(problem), {}));
        shared.nearest(parse_problem("b100 s2"), {});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(PlanStore(folder_, environment()).list().size(), 24u);
  EXPECT_EQ(names_in(folder_).size(), 2u);  // the plans and the lock
}

}  // namespace
}  // namespace gnomon
