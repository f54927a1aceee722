// What cuda_blas.cc and cuda_dnn.cc keep alike: the library's functions once for the process; for each device's code a handle
// and a plan for each problem that was seen. Only for those two files.
//
// A Library has:
//   using Key        the problem; all of its fields are 64 bits wide: compared as bytes
//   using Plan       how the library solves it, with `bool usable` and `bool warm` (it has run: its kernels are loaded, so that
//   it may
//                    be captured), both accessed atomically
//   kAttachment      its place in cuda_attachment
//   static bool load()                                     finds the functions; asked once
//   static bool create(void** handle), void destroy(void* handle)
//   static void fill(void* handle, const Key&, Plan*)      sets usable
//   static void clear(Plan*)
#ifndef COIL_DEVICE_CUDA_PLANS_H_
#define COIL_DEVICE_CUDA_PLANS_H_

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_device.h"

namespace cd {

template <class Library>
class CudaPlans {
 public:
  using Key = typename Library::Key;
  using Plan = typename Library::Plan;

  // Guards all that the library keeps; static, so that it is there before anything else.
  static void lock() { pthread_mutex_lock(&mutex_); }
  static void unlock() { pthread_mutex_unlock(&mutex_); }

  // Under the lock: the plan that serves the call, and the device's handle; null: the caller computes it itself. While the
  // stream is being captured only what has run before.
  static Plan* find(const CoilCall* call, const Key& key, void** handle) {
    if (looked_ && !found_) return nullptr;
    const bool capturing = is_capturing(loaded_of(call).driver, call->stream);
    Kept* kept = kept_of(call, !capturing);
    if (!kept || !kept->handle) return nullptr;
    *handle = kept->handle;
    Plan* plan = plan_for(kept, key, !capturing);
    const bool able = plan && __atomic_load_n(&plan->usable, __ATOMIC_RELAXED) && (!capturing || __atomic_load_n(&plan->warm, __ATOMIC_RELAXED));
    return able ? plan : nullptr;
  }

 private:
  static constexpr int32_t kBuckets = 64, kMostPlans = 4096;

  struct Entry {
    Entry* next;
    Key key;
    Plan plan;
  };
  // What a device keeps (cuda_attachment).
  struct Kept {
    void* handle;  // null: the library does not want this device
    int32_t num_plans;
    Entry* entries[kBuckets];
  };

  static bool load() {
    if (!looked_) found_ = Library::load();
    looked_ = true;
    return found_;
  }

  // When the device's code is unloaded.
  static void drop(void* state) {
    Kept* kept = static_cast<Kept*>(state);
    for (Entry* entry : kept->entries) {
      while (entry) {
        Entry* next = entry->next;
        Library::clear(&entry->plan);
        free(entry);
        entry = next;
      }
    }
    if (kept->handle) Library::destroy(kept->handle);
    free(kept);
  }

  // What call->device keeps, made when it is new and `make`; null: nothing.
  static Kept* kept_of(const CoilCall* call, bool make) {
    CudaAttachment* place = cuda_attachment(call, Library::kAttachment);
    if (place->state || !make || !load()) return static_cast<Kept*>(place->state);
    Kept* kept = static_cast<Kept*>(calloc(1, sizeof(Kept)));
    if (!kept) return nullptr;
    if (!Library::create(&kept->handle)) kept->handle = nullptr;
    *place = {kept, drop};
    return kept;
  }

  static Entry** bucket(Kept* kept, const Key& key) {
    const uint64_t* words = reinterpret_cast<const uint64_t*>(&key);
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof key / 8; i++) hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull;
    return &kept->entries[hash >> 58];
  }

  // The plan for the key, made when it is new and `make`; null: none.
  static Plan* plan_for(Kept* kept, const Key& key, bool make) {
    Entry** head = bucket(kept, key);
    for (Entry* e = *head; e; e = e->next) {
      if (memcmp(&e->key, &key, sizeof key) == 0) return &e->plan;
    }
    if (!make || kept->num_plans == kMostPlans) return nullptr;
    Entry* entry = static_cast<Entry*>(calloc(1, sizeof(Entry)));
    if (!entry) return nullptr;
    entry->key = key;
    Library::fill(kept->handle, key, &entry->plan);
    entry->next = *head;
    *head = entry;
    kept->num_plans++;
    return &entry->plan;
  }

  static inline pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  static inline bool looked_ = false, found_ = false;
};

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_PLANS_H_
