// A store file's text is somebody else's: it parses, or it is refused with an environment error; and what was parsed
// can be explained and written again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.hpp"
#include "plan/plan_store.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const gnomon::StoreFile file = gnomon::parse_store_file({reinterpret_cast<const char*>(data), size});
    for (const gnomon::PlanRecord& record : file.records) {
      gnomon::explain_text(record);
      const nlohmann::json json = record;
      if (nlohmann::json(json.get<gnomon::PlanRecord>()) != json) std::abort();
    }
  } catch (const gnomon::Error& error) {
    if (error.kind() != gnomon::ErrorKind::environment) std::abort();
  }
  return 0;
}
