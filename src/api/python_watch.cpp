// What python/gnomon/_glance.py asks on every call: has anything happened to these dictionaries, objects and tensors
// since? Called with the interpreter's lock held. Python's and PyTorch's headers are not needed: one library serves all
// their versions. A watch is only made where each of these layouts was found to hold for each of its objects.
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

namespace {

// Of DLPack 1.x, the exchange interface for C, which PyTorch has since 2.10.
struct DLTensor {
  void* data;
  std::int32_t device_type, device_id;
  std::int32_t rank;
  std::uint32_t dtype;  // code, bits, lanes
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

struct DLPackExchange {
  struct {
    std::uint32_t major, minor;
    void* older;
  } header;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, DLTensor* out);  // -1 and a Python exception; may be null
};

// A PyObject's beginning, which CPython's stable ABI fixes (but for builds without the interpreter's lock).
struct Object {
  std::intptr_t references;
  const void* type;
};

struct Module {
  const Object* object;
  const void* type;
};

// at::TensorBase is one pointer in memory, and `const at::TensorBase*` a pointer to one.
using VersionOf = std::int64_t (*)(const void* const* tensor);  // at::TensorBase::_version() const

struct Tensor {
  void* object;
  const void* implementation;  // what at::TensorBase points to
  DLTensor seen;               // `shape` lies in the implementation: as long as it is the same, so is that
  std::int64_t version;
  std::vector<std::int64_t> layout;  // sizes, then strides
};

bool same_layout(const std::vector<std::int64_t>& layout, const DLTensor& now) {
  const std::size_t bytes = sizeof(std::int64_t) * now.rank;
  return bytes == 0 || (std::memcmp(layout.data(), now.shape, bytes) == 0 &&
                        std::memcmp(layout.data() + now.rank, now.strides, bytes) == 0);
}

constexpr std::uintptr_t kImplementationSize = 1024;  // at most: sizes of up to five axes lie in it

std::uint64_t changes = 0;

}  // namespace

struct gnomon_watch {
  std::uint64_t changes;
  bool counts_changes;
  bool reads_tensors;
  const DLPackExchange* exchange;
  VersionOf version_of;
  std::vector<Module> modules;
  std::vector<Tensor> tensors;
};

namespace {

bool read(gnomon_watch& watch, Tensor& tensor) {
  if (watch.exchange->tensor_from_object(tensor.object, &tensor.seen) != 0) return false;
  const DLTensor& seen = tensor.seen;
  const std::uintptr_t within =
      reinterpret_cast<std::uintptr_t>(seen.shape) - reinterpret_cast<std::uintptr_t>(tensor.implementation);
  if (within >= kImplementationSize || (seen.rank > 0 && seen.strides == nullptr)) return false;
  tensor.layout.assign(seen.shape, seen.shape + seen.rank);
  tensor.layout.insert(tensor.layout.end(), seen.strides, seen.strides + seen.rank);
  const std::int64_t expected = tensor.version;
  tensor.version = watch.version_of(&tensor.implementation);
  return tensor.version == expected;
}

bool same(const gnomon_watch& watch, const Tensor& tensor) {
  DLTensor now;
  if (watch.exchange->tensor_from_object(tensor.object, &now) != 0) return false;
  const DLTensor& then = tensor.seen;
  return now.shape == then.shape && now.data == then.data && now.byte_offset == then.byte_offset &&
         now.rank == then.rank && now.dtype == then.dtype && now.device_type == then.device_type &&
         now.device_id == then.device_id && same_layout(tensor.layout, now) &&
         watch.version_of(&tensor.implementation) == tensor.version;
}

}  // namespace

#define GNOMON_FOR_PYTHON extern "C" [[gnu::visibility("default")]]

// A PyDict_WatchCallback: whatever happens to a watched dictionary counts.
GNOMON_FOR_PYTHON int gnomon_watch_count(int, void*, void*, void*) {
  ++changes;
  return 0;
}

GNOMON_FOR_PYTHON std::uint64_t gnomon_watch_changes() { return changes; }

// `types[i]` is the class of `modules[i]`. `counts_changes`: the dictionaries are watched. `exchange` and `version_of`
// are null where tensors cannot be read; else `implementations[i]` and `versions[i]` are what `tensors[i]` says of
// itself. All objects outlive the watch. Null, with or without a Python exception, when something here is laid out in
// another way.
GNOMON_FOR_PYTHON gnomon_watch* gnomon_watch_create(bool counts_changes, std::size_t modules, void* const* module,
                                                    void* const* types, const void* exchange, void* version_of,
                                                    std::size_t tensors, void* const* tensor,
                                                    void* const* implementations, const std::int64_t* versions) try {
  auto watch = std::make_unique<gnomon_watch>();
  watch->changes = changes;
  watch->counts_changes = counts_changes;
  for (std::size_t i = 0; i < modules; ++i) {
    const auto* object = static_cast<const Object*>(module[i]);
    if (object->type != types[i]) return nullptr;
    watch->modules.push_back({object, types[i]});
  }
  watch->exchange = static_cast<const DLPackExchange*>(exchange);
  watch->version_of = reinterpret_cast<VersionOf>(version_of);
  watch->reads_tensors = exchange != nullptr && version_of != nullptr;
  if (!watch->reads_tensors) return watch.release();
  if (watch->exchange->header.major != 1 || watch->exchange->tensor_from_object == nullptr) return nullptr;
  for (std::size_t i = 0; i < tensors; ++i) {
    Tensor& added = watch->tensors.emplace_back(Tensor{tensor[i], implementations[i], {}, versions[i], {}});
    if (!read(*watch, added)) return nullptr;
  }
  return watch.release();
} catch (...) {  // memory; a version that is not counted
  return nullptr;
}

GNOMON_FOR_PYTHON void gnomon_watch_destroy(gnomon_watch* watch) { delete watch; }

// What must be looked at more closely: 1 dictionaries and classes, 2 tensors; 0: nothing, all is as it was.
GNOMON_FOR_PYTHON int gnomon_watch_look(const gnomon_watch* watch) try {
  int found = watch->counts_changes && watch->changes == changes ? 0 : 1;
  for (const Module& module : watch->modules) {
    if (module.object->type != module.type) found |= 1;
  }
  if (!watch->reads_tensors) return found | 2;
  for (const Tensor& tensor : watch->tensors) {
    if (!same(*watch, tensor)) return found | 2;
  }
  return found;
} catch (...) {
  return 3;
}

// The dictionaries were found to be as they were when `seen` changes had been counted.
GNOMON_FOR_PYTHON void gnomon_watch_settle(gnomon_watch* watch, std::uint64_t seen) { watch->changes = seen; }
