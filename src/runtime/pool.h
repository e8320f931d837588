// Memory pools: caches of their own beside the ordinary one.
#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/pool_id.h"

namespace fl {

PoolId new_pool_id(bool of_user);  // not used before in this process

// Held pools keep their memory; a pool is made when it is first held.
void hold_pool(int32_t device, PoolId id, PoolOptions options = {});
void release_pool(int32_t device, PoolId id) noexcept;
int pool_holders(int32_t device, PoolId id) noexcept;

// What this thread allocates on the device comes from the pool, until the route ends; the innermost counts.
void begin_pool_route(int32_t device, PoolId id);
void end_pool_route(int32_t device, PoolId id);

Block* allocate(Stream& stream, size_t bytes, PoolId pool);  // from that pool, whatever is routed

// To the device: what is free in the pool ({}: in all) and nobody holds.  -1: of all devices.
void empty_cache(int32_t device, PoolId pool);

// Off: memory goes back to the device when it is freed, and each request is one of the device's own.
void set_caching(bool on) noexcept;
extern std::atomic<bool> caching_now;
inline bool caching() noexcept { return caching_now.load(std::memory_order_relaxed); }

// MemoryStats.reserved_bytes of each pool but the ordinary one.
std::vector<std::pair<PoolId, StatArray>> pool_stats(int32_t device);

}  // namespace fl
