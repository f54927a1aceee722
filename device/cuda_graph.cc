// See cuda_graph.h.
#include "cuda_graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_device.h"
#include "cuda_tape.h"

namespace cd {
namespace {

constexpr int32_t kSlots = 32;       // sizes and streams that are watched
constexpr int32_t kMostGraphs = 8;   // of them have graphs
constexpr int32_t kWarmCalls = 4;    // the first of them loads the kernels, the others are timed
constexpr int32_t kTrials = 12;      // calls after which a graph must have been faster
constexpr int32_t kMostMisses = 64;  // calls in a row that a graph could not serve
constexpr int64_t kIdleCalls = 64;   // of the program, after which another may take a graph's place

// The least time of some calls' enqueuing: longer ones waited for room in the stream's queue, or for the processor.
struct Clock {
  int64_t least_ns;
  int32_t count;

  void add(int64_t ns) {
    if (!count++ || ns < least_ns) least_ns = ns;
  }
  // Whether it is clear that the other is as good.
  bool beaten_by(const Clock& other) const { return count >= kTrials && least_ns * 10 >= other.least_ns * 9; }
};

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// Calls of the same sizes on the same stream. `used`, `stream` and the sizes change under the mutex, while nobody is busy with
// the slot; the rest belongs to whoever is.
struct Slot {
  bool used;
  int32_t busy;
  int64_t last_used;  // CudaGraphs::calls
  void* stream;
  int64_t* identity;  // sizes, then addresses: of what the graph holds, if `exact`
  bool exact;
  bool rejected;
  bool changes;  // whether changing addresses in the graph is worth it
  int32_t watched, misses;
  Clock plain, whole, changed;
  CudaTape tape;
  void *graph, *executable;  // null: none
};

}  // namespace

struct CudaGraphs {
  const CudaDriver* driver;
  void* context;
  bool timed, early;
  int64_t calls, graph_calls, changed_calls;  // atomically
  pthread_mutex_t mutex;                      // guards the choice of slots and all below
  int32_t num_graphs;
  int64_t* identities;
  Slot slots[kSlots];
};

namespace {

// What a thread does here must not end the capture of another thread's stream.
class Relaxed {
 public:
  explicit Relaxed(const CudaDriver* driver) : driver_(driver) { driver_->exchange_capture_mode(&mode_); }
  ~Relaxed() { driver_->exchange_capture_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  const CudaDriver* driver_;
  int32_t mode_ = kCudaCaptureRelaxed;
};

int64_t calls_of(const CudaGraphs* g) { return __atomic_load_n(&g->calls, __ATOMIC_RELAXED); }

size_t num_addresses(const CudaProgram& p) { return static_cast<size_t>(p.num_inputs) + static_cast<size_t>(p.num_outputs) + 4; }
size_t num_words(const CudaProgram& p) { return static_cast<size_t>(p.num_symbols) + num_addresses(p); }

// The addresses of a slot's identity: its sizes are read by other threads.
int64_t* addresses_of(const CudaProgram& p, Slot* s) { return s->identity + p.num_symbols; }

void list_addresses(const CudaProgram& p, const CoilCall& call, int64_t* words) {
  const auto put = [&](const void* values, int32_t count) {
    if (count > 0) memcpy(words, values, static_cast<size_t>(count) * 8);
    words += count;
  };
  const void* const more[] = {call.arena, call.constants, call.state, call.flag};
  put(call.inputs, p.num_inputs);
  put(call.outputs, p.num_outputs);
  put(more, 4);
}

// Frees the slot's graph and tape. A graph that still runs is freed by the driver when it is done.
void drop_graph(CudaGraphs* g, Slot* s) {
  if (s->graph) {
    const Relaxed relaxed(g->driver);
    if (s->executable) g->driver->delete_executable(s->executable);
    g->driver->delete_graph(s->graph);
  }
  s->graph = s->executable = nullptr;
  tape_free(&s->tape);
}

// Under the mutex: the slot to give to a new size. Null: all are in use.
Slot* free_slot(CudaGraphs* g) {
  Slot* oldest = nullptr;
  for (Slot& s : g->slots) {
    if (!s.used) return &s;
    if (__atomic_load_n(&s.busy, __ATOMIC_ACQUIRE)) continue;
    if (s.executable && calls_of(g) - s.last_used < kIdleCalls) continue;
    if (!oldest || s.last_used < oldest->last_used) oldest = &s;
  }
  return oldest;
}

void clear_slot(CudaGraphs* g, Slot* s) {
  if (s->executable) g->num_graphs--;
  drop_graph(g, s);
  int64_t* const identity = s->identity;
  memset(s, 0, sizeof *s);
  s->identity = identity;
}

// The call's slot, for this thread alone until it is given back; null: the call goes without.
Slot* take_slot(CudaGraphs* g, const CudaProgram& p, const CoilCall& call) {
  const size_t bytes = static_cast<size_t>(p.num_symbols) * 8;
  pthread_mutex_lock(&g->mutex);
  if (!g->identities) {
    g->identities = static_cast<int64_t*>(calloc(kSlots, num_words(p) * 8));
    for (size_t i = 0; g->identities && i < kSlots; i++) g->slots[i].identity = g->identities + i * num_words(p);
  }
  Slot* found = nullptr;
  for (Slot& s : g->slots) {
    if (!s.used || s.stream != call.stream || (bytes && memcmp(s.identity, call.symbols, bytes) != 0)) continue;
    found = &s;
    break;
  }
  if (!found && g->identities && (found = free_slot(g))) {
    clear_slot(g, found);
    found->used = true;
    found->changes = true;
    found->stream = call.stream;
    if (bytes) memcpy(found->identity, call.symbols, bytes);
  }
  if (found && __atomic_load_n(&found->busy, __ATOMIC_ACQUIRE)) found = nullptr;
  if (found) {
    found->last_used = calls_of(g);
    __atomic_store_n(&found->busy, 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&g->mutex);
  return found;
}

void give_back(Slot* s) { __atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE); }

// Whether there may be one graph more; takes the place of one that is idle.
bool reserve_graph(CudaGraphs* g) {
  pthread_mutex_lock(&g->mutex);
  bool able = g->num_graphs < kMostGraphs;
  Slot* oldest = nullptr;
  for (Slot& s : g->slots) {
    if (able) break;
    if (!s.used || __atomic_load_n(&s.busy, __ATOMIC_ACQUIRE) || !s.executable || calls_of(g) - s.last_used < kIdleCalls) continue;
    if (!oldest || s.last_used < oldest->last_used) oldest = &s;
  }
  if (oldest) {
    clear_slot(g, oldest);
    able = true;
  }
  if (able) g->num_graphs++;
  pthread_mutex_unlock(&g->mutex);
  return able;
}

void reject(CudaGraphs* g, Slot* s, const char* why) {
  if (s->executable) {
    pthread_mutex_lock(&g->mutex);
    g->num_graphs--;
    pthread_mutex_unlock(&g->mutex);
  }
  cuda_trace("graph: none for stream %p: %s", s->stream, why);
  drop_graph(g, s);
  s->rejected = true;
}

// The program's code writes its work down.
bool write_down(const CudaProgram& p, const CoilCall& call, CudaTape* tape, bool again) {
  tape_begin(tape, again);
  const CudaCall taped = {{call, nullptr}, tape};
  CoilError ignored = {};
  return p.enqueue(&taped, &ignored) == 0 && tape_end(tape);
}

CudaResult add_nodes(CudaGraphs* g, Slot* s) {
  const CudaDriver& driver = *g->driver;
  void* values[kMaxCudaParams];
  void* last = nullptr;
  CudaResult result = kCudaSuccess;
  for (int32_t i = 0; i < s->tape.num_ops && result == kCudaSuccess; i++) {
    CudaTapeOp& op = s->tape.ops[i];
    if (op.function) {
      CudaKernelNode node;
      tape_node(s->tape, op, values, &node);
      const bool early = g->early && !op.foreign && last && s->tape.ops[i - 1].function;
      result = driver.add_kernel(&op.node, s->graph, &last, last && !early ? 1 : 0, &node);
      const CudaEdge edge = {kCudaEdgeProgrammatic, 0, kCudaEdgeProgrammatic, {}};
      if (result == kCudaSuccess && early) result = driver.add_edges(s->graph, &last, &op.node, &edge, 1);
      CudaLaunchAttribute attribute = {};
      attribute.cluster[0] = static_cast<uint32_t>(op.cluster), attribute.cluster[1] = attribute.cluster[2] = 1;
      if (result == kCudaSuccess && op.cluster > 1) result = driver.set_node_attribute(op.node, kCudaClusterDimension, attribute.bytes);
    } else {
      CudaCopyNode node;
      tape_node(op, &node);
      result = driver.add_copy(&op.node, s->graph, &last, last ? 1 : 0, &node, g->context);
    }
    last = op.node;
  }
  return result;
}

// Makes the graph of a call that has been enqueued.
void make_graph(CudaGraphs* g, const CudaProgram& p, const CoilCall& call, Slot* s) {
  if (!reserve_graph(g)) return;
  const bool written = write_down(p, call, &s->tape, false);
  CudaResult result = kCudaInvalidValue;
  if (written && s->tape.num_ops > 0) {
    const Relaxed relaxed(g->driver);
    result = g->driver->make_graph(&s->graph, 0);
    if (result != kCudaSuccess) s->graph = nullptr;
    if (result == kCudaSuccess) result = add_nodes(g, s);
    void* executable = nullptr;
    if (result == kCudaSuccess) result = g->driver->instantiate(&executable, s->graph, 0);
    if (result == kCudaSuccess) s->executable = executable;
  }
  if (!s->executable) {
    pthread_mutex_lock(&g->mutex);
    g->num_graphs--;
    pthread_mutex_unlock(&g->mutex);
    return reject(g, s, !written ? "a library has a part in the call" : s->tape.num_ops == 0 ? "no kernels" : "the driver refuses");
  }
  list_addresses(p, call, addresses_of(p, s));
  s->exact = true;
  cuda_trace("graph of %d launches for stream %p, which took %lld ns to enqueue", s->tape.num_ops, s->stream, static_cast<long long>(s->plain.least_ns));
}

// Changes what differs on the tape. A node that cannot be changed leaves the rest as it was written down: dirty.
bool apply(CudaGraphs* g, Slot* s) {
  void* values[kMaxCudaParams];
  for (int32_t i = 0; i < s->tape.num_ops; i++) {
    CudaTapeOp& op = s->tape.ops[i];
    if (!op.dirty) continue;
    CudaResult result;
    if (op.function) {
      CudaKernelNode node;
      tape_node(s->tape, op, values, &node);
      result = g->driver->change_kernel(s->executable, op.node, &node);
    } else {
      CudaCopyNode node;
      tape_node(op, &node);
      result = g->driver->change_copy(s->executable, op.node, &node, g->context);
    }
    if (result != kCudaSuccess) return false;
    op.dirty = false;
  }
  return true;
}

// Launches the slot's graph for the call. False: nothing was enqueued.
bool launch_graph(CudaGraphs* g, const CudaProgram& p, const CoilCall& call, Slot* s, const int64_t* addresses) {
  const bool whole = s->exact && memcmp(addresses, addresses_of(p, s), num_addresses(p) * 8) == 0;
  if (!whole && !s->changes) return false;
  const int64_t start = now_ns();
  if (!whole) {
    s->exact = false;
    if (!write_down(p, call, &s->tape, true)) return false;
    if (!apply(g, s)) return reject(g, s, "the driver does not change it"), false;
    memcpy(addresses_of(p, s), addresses, num_addresses(p) * 8);
    s->exact = true;
  }
  if (g->driver->launch_graph(s->executable, call.stream) != kCudaSuccess) return reject(g, s, "the driver does not launch it"), false;
  __atomic_fetch_add(&g->graph_calls, 1, __ATOMIC_RELAXED);
  if (!whole) __atomic_fetch_add(&g->changed_calls, 1, __ATOMIC_RELAXED);
  Clock& clock = whole ? s->whole : s->changed;
  clock.add(now_ns() - start);
  return true;
}

// After a call that a graph served.
void judge(CudaGraphs* g, Slot* s) {
  s->misses = 0;
  if (!g->timed) return;
  if (s->whole.beaten_by(s->plain)) return reject(g, s, "it is not faster");
  if (s->changes && s->changed.beaten_by(s->plain)) {
    cuda_trace("graph for stream %p: changing addresses is not faster", s->stream);
    s->changes = false;
  }
}

int32_t run_plain(const CudaProgram& p, const CoilCall& call, CoilError* error) {
  const CudaCall plain = {{call, nullptr}, nullptr};
  return p.enqueue(&plain, error);
}

// Kernel by kernel, while it is not known whether a graph is worth it.
int32_t run_watched(CudaGraphs* g, const CudaProgram& p, const CoilCall& call, Slot* s, CoilError* error) {
  const int64_t start = now_ns();
  const int32_t failed = run_plain(p, call, error);
  const int64_t took = now_ns() - start;
  if (failed) return failed;
  if (s->watched++ > 0) s->plain.add(took);
  if (s->watched % kWarmCalls == 0) make_graph(g, p, call, s);
  return 0;
}

}  // namespace

CudaGraphs* cuda_graphs_open(const CudaDriver* driver, void* context, bool early) {
  const char* wish = getenv("COIL_CUDA_GRAPHS");
  const int mode = wish && *wish ? atoi(wish) : 1;
  const bool able = driver->make_graph && driver->delete_graph && driver->add_kernel && driver->add_copy && driver->set_node_attribute && driver->instantiate &&
                    driver->delete_executable && driver->change_kernel && driver->change_copy && driver->launch_graph && driver->exchange_capture_mode;
  if (mode == 0 || !able) return nullptr;
  CudaGraphs* g = static_cast<CudaGraphs*>(calloc(1, sizeof(CudaGraphs)));
  if (!g) return nullptr;
  g->driver = driver;
  g->context = context;
  g->timed = mode != 2;
  g->early = early;
  pthread_mutex_init(&g->mutex, nullptr);
  return g;
}

void cuda_graphs_close(CudaGraphs* g, bool alive) {
  if (!g) return;
  for (Slot& s : g->slots) {
    if (!alive) s.graph = nullptr;
    drop_graph(g, &s);
  }
  pthread_mutex_destroy(&g->mutex);
  free(g->identities);
  free(g);
}

void cuda_graphs_count(CudaGraphs* g, CoilGraphCounts* counts) {
  pthread_mutex_lock(&g->mutex);
  counts->calls = calls_of(g);
  counts->graphs = g->num_graphs;
  pthread_mutex_unlock(&g->mutex);
  counts->graph_calls = __atomic_load_n(&g->graph_calls, __ATOMIC_RELAXED);
  counts->changed_calls = __atomic_load_n(&g->changed_calls, __ATOMIC_RELAXED);
}

int32_t cuda_graphs_run(CudaGraphs* g, const CudaProgram& p, const CoilCall* call, CoilError* error) {
  __atomic_fetch_add(&g->calls, 1, __ATOMIC_RELAXED);
  if (g->timed && g->early && p.outlasts && p.outlasts(call->symbols)) return run_plain(p, *call, error);
  Slot* s = is_capturing(g->driver, call->stream) ? nullptr : take_slot(g, p, *call);
  if (!s) return run_plain(p, *call, error);
  int32_t failed = 0;
  if (s->rejected) {
    failed = run_plain(p, *call, error);
  } else if (!s->executable) {
    failed = run_watched(g, p, *call, s, error);
  } else {
    int64_t* addresses = static_cast<int64_t*>(__builtin_alloca(num_addresses(p) * 8));
    list_addresses(p, *call, addresses);
    if (launch_graph(g, p, *call, s, addresses)) {
      judge(g, s);
    } else {
      failed = run_plain(p, *call, error);
      if (s->executable && ++s->misses > kMostMisses) reject(g, s, "other addresses in each call");
    }
  }
  give_back(s);
  return failed;
}

}  // namespace cd
