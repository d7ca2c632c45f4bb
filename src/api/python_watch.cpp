// What python/gnomon/_glance.py asks on every call: has anything happened to these dictionaries, objects and tensors?
// Called with the interpreter's lock held. Python's and PyTorch's headers are not needed: one library serves all their
// versions, and a watch is only made where each layout that is assumed here was found to hold for each of its objects.
#include <cstdint>
#include <memory>
#include <vector>

#include "api/for_python.hpp"

namespace {

// A PyObject's beginning, which CPython's stable ABI fixes (but for builds without the interpreter's lock).
struct Object {
  std::intptr_t references;
  const void* type;
};

// at::TensorBase is one pointer in memory, to the implementation, and PyTorch's functions take a pointer to that.
using Handle = const void* const*;

}  // namespace

extern "C" {

// PyTorch's: at::TensorBase::_version() const, and of its C shim, the stable one.
struct gnomon_tensor_readers {
  std::int64_t (*version)(Handle);
  std::int32_t (*data)(Handle, void**);
  std::int32_t (*sizes)(Handle, std::int64_t**);
  std::int32_t (*strides)(Handle, std::int64_t**);
  std::size_t object_size;  // of the Python class that holds the pointer to the implementation
};

// A tensor as Python sees it.
struct gnomon_seen_tensor {
  const void* object;
  const void* implementation;
  void* data;
  std::int64_t version;
  std::int64_t rank;
  const std::int64_t* layout;  // sizes, then strides
};
}

namespace {

struct Module {
  const Object* object;
  const void* type;
};

struct Tensor {
  Handle holder;  // in the Python object
  gnomon_seen_tensor seen;
  std::vector<std::int64_t> layout;
};

std::uint64_t changes = 0;

}  // namespace

struct gnomon_watch {
  std::uint64_t changes;
  bool counts_changes;
  bool reads_tensors;
  gnomon_tensor_readers readers;
  std::vector<Module> modules;
  std::vector<Tensor> tensors;
};

namespace {

// Where in the object the pointer to the implementation lies; null: nowhere.
Handle holder_of(const gnomon_seen_tensor& tensor, std::size_t object_size) {
  const auto* words = static_cast<Handle>(tensor.object);
  for (std::size_t i = sizeof(Object) / sizeof(void*); i < object_size / sizeof(void*); ++i) {
    if (words[i] == tensor.implementation) return words + i;
  }
  return nullptr;
}

bool equal(const std::int64_t* one, const std::int64_t* other, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (one[i] != other[i]) return false;
  }
  return true;
}

// The implementation comes first: the others are read from the one that the object holds now.
bool same(const gnomon_tensor_readers& readers, const Tensor& tensor) {
  const gnomon_seen_tensor& seen = tensor.seen;
  if (*tensor.holder != seen.implementation || readers.version(tensor.holder) != seen.version) return false;
  void* data;
  std::int64_t *sizes, *strides;
  return readers.data(tensor.holder, &data) == 0 && data == seen.data && readers.sizes(tensor.holder, &sizes) == 0 &&
         readers.strides(tensor.holder, &strides) == 0 && equal(sizes, tensor.layout.data(), seen.rank) &&
         equal(strides, tensor.layout.data() + seen.rank, seen.rank);
}

}  // namespace

// A PyDict_WatchCallback: whatever happens to a watched dictionary counts.
GNOMON_FOR_PYTHON int gnomon_watch_count(int, void*, void*, void*) {
  ++changes;
  return 0;
}

GNOMON_FOR_PYTHON std::uint64_t gnomon_watch_changes() { return changes; }

// `types[i]` is the class of `objects[i]`. `counts_changes`: the dictionaries are watched. `readers` is null where
// tensors cannot be read. All objects outlive the watch. Null when something is laid out in another way than is assumed
// here.
GNOMON_FOR_PYTHON gnomon_watch* gnomon_watch_create(bool counts_changes, std::size_t modules, void* const* objects,
                                                    void* const* types, const gnomon_tensor_readers* readers,
                                                    std::size_t tensors, const gnomon_seen_tensor* seen) try {
  auto watch = std::make_unique<gnomon_watch>();
  watch->changes = changes;
  watch->counts_changes = counts_changes;
  for (std::size_t i = 0; i < modules; ++i) {
    const auto* object = static_cast<const Object*>(objects[i]);
    if (object->type != types[i]) return nullptr;
    watch->modules.push_back({object, types[i]});
  }
  watch->reads_tensors = readers != nullptr;
  if (readers == nullptr) return watch.release();
  watch->readers = *readers;
  for (std::size_t i = 0; i < tensors; ++i) {
    const Handle holder = holder_of(seen[i], readers->object_size);
    if (holder == nullptr) return nullptr;
    watch->tensors.push_back({holder, seen[i], {seen[i].layout, seen[i].layout + 2 * seen[i].rank}});
    if (!same(*readers, watch->tensors.back())) return nullptr;
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
    if (!same(watch->readers, tensor)) return found | 2;
  }
  return found;
} catch (...) {
  return 3;
}

// The dictionaries were found to be as they were when `seen` changes had been counted.
GNOMON_FOR_PYTHON void gnomon_watch_settle(gnomon_watch* watch, std::uint64_t seen) { watch->changes = seen; }
