#include "base/without_memory.h"

#include <atomic>
#include <cstdlib>
#include <utility>

namespace coil {
namespace {

// For one that failed, and for destructors on the way of the exception.
constexpr size_t kForTry = 64 << 10, kForWay = 256 << 10;

std::atomic<int> users{0};
std::atomic<void*> for_try{nullptr}, for_way{nullptr};
std::atomic<std::new_handler> hosts_handler{nullptr};

void fill(std::atomic<void*>& place, size_t bytes) {
  if (place.load()) return;
  void* empty = nullptr;
  void* const data = std::malloc(bytes);
  if (!place.compare_exchange_strong(empty, data)) std::free(data);
}

bool let_go(std::atomic<void*>& place) {
  void* const data = place.exchange(nullptr);
  std::free(data);
  return data != nullptr;
}

void new_failed() {
  if (no_memory_hook && no_memory_hook()) return;
  if (let_go(for_try)) return;
  let_go(for_way);
  const std::new_handler host = hosts_handler;
  if (!host) throw std::bad_alloc();
  host();
}

}  // namespace

thread_local NoMemoryHook no_memory_hook = nullptr;

void prepare_for_no_memory() {
  const std::new_handler host = std::set_new_handler(new_failed);
  if (host != new_failed) hosts_handler = host;
}

MemoryReserve::MemoryReserve() {
  prepare_for_no_memory();
  ++users;
  fill(for_try, kForTry);
  fill(for_way, kForWay);
}

MemoryReserve::~MemoryReserve() {
  if (--users > 0) return;
  let_go(for_try);
  let_go(for_way);
}

}  // namespace coil
