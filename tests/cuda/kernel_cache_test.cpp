#include "cuda/kernel_cache.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_directory.hpp"

namespace gnomon::cuda {
namespace {

namespace fs = std::filesystem;

CompiledKernel kernel(const char* source, const char* architecture) {
  return {.image = "code",
          .symbol = "f",
          .log = "log",
          .source = source,
          .architecture = architecture,
          .compiler = "NVRTC 13.0"};
}

TEST(KernelCacheTest, ListsWhatItHoldsAndWhatIsNoUse) {
  const test::TemporaryDirectory directory;
  const KernelCache cache(directory.path() / "kernels");
  EXPECT_TRUE(cache.list().empty());
  cache.write("2", kernel("norm.cuh: norm<8>", "sm_90a"));
  cache.write("1", kernel("rows.cuh: rows<8>", "sm_80"));
  std::ofstream(directory.path() / "kernels" / "3.kernel") << "gnomon kernel 1\nolder";
  std::ofstream(directory.path() / "kernels" / "readme.txt") << "not ours";
  const auto files = cache.list();
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].unusable, "is of another version of Gnomon");
  EXPECT_EQ(files[1].kernel.source, "rows.cuh: rows<8>");
  EXPECT_EQ(files[1].kernel.architecture, "sm_80");
  EXPECT_EQ(files[1].kernel.compiler, "NVRTC 13.0");
  EXPECT_EQ(files[1].unusable, "");
  EXPECT_EQ(files[1].bytes, fs::file_size(files[1].path));
  EXPECT_EQ(files[2].kernel.source, "norm.cuh: norm<8>");
}

TEST(KernelCacheTest, ClearRemovesItsFilesAndNoOthers) {
  const test::TemporaryDirectory directory;
  const fs::path folder = directory.path() / "kernels";
  const KernelCache cache(folder);
  EXPECT_EQ(cache.clear().files, 0);
  cache.write("1", kernel("rows.cuh: rows<8>", "sm_80"));
  std::ofstream(folder / "2.kernel") << "damaged";
  std::ofstream(folder / "3.kernel.77.0.tmp") << "of a writer that died";
  std::ofstream(folder / "notes.tmp") << "not ours";
  const KernelCache::Removed removed = cache.clear();
  EXPECT_EQ(removed.files, 3);
  EXPECT_GT(removed.bytes, 0u);
  EXPECT_TRUE(cache.list().empty());
  EXPECT_TRUE(fs::exists(folder / "notes.tmp"));
}

}  // namespace
}  // namespace gnomon::cuda
