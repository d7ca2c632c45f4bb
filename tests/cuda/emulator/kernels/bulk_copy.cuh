// In place of src/cuda/kernels/bulk_copy.cuh.
#pragma once

#include "mbarrier.cuh"

namespace gnomon::kernels {

inline void bulk_load(u32 to, const void* from, u32 bytes, u32 barrier) {
  emulator::bulk_load(to, from, bytes, barrier, emulator::kOwnCta);
}
inline void bulk_load_multicast(u32 to, const void* from, u32 bytes, u32 barrier, u16 ranks) {
  emulator::bulk_load(to, from, bytes, barrier, ranks);
}
inline void bulk_send(u32 to, u32 from, u32 bytes, u32 barrier) { emulator::bulk_send(to, from, bytes, barrier); }
inline void send_registers(u32 to, const u32 (&v)[4], u32 barrier) { emulator::send_registers(to, v, barrier); }
inline void prefetch_to_l2(const void* from, u32 bytes) { emulator::bulk_prefetch(from, bytes); }
inline void publish_shared_writes() { emulator::publish_writes(); }

}  // namespace gnomon::kernels
