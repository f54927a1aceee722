// See emulation.h. x86-64 Linux.
#include "emulation.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>
#include <vector>

// Saves the callee's registers on the stack, leaves the stack pointer in *from and goes on where `to` was left.
asm(R"(
  .text
  .globl emulation_switch
  .hidden emulation_switch
  .type emulation_switch, @function
emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulation_switch, .-emulation_switch
)");
extern "C" void emulation_switch(void** from, void* to);

namespace emulation {

Size3 thread_index, block_index, block_size, grid_size;

namespace {

enum : int32_t { kIllegalAddress = 700, kIllegalInstruction = 715, kMisaligned = 716, kLaunchFailed = 719 };
enum class State { fresh, ready, at_cluster_barrier, at_block_barrier, at_warp_barrier, done };

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kPage = 4096;
constexpr size_t kMostStatic = 48 << 10, kMostDynamic = 228 << 10, kMostShared = kMostStatic + kMostDynamic;
constexpr size_t kMostCluster = 16;
constexpr size_t kWarp = 32;
constexpr size_t kTile = 1024, kOfTiles = 16 << 10;  // where shared memory of so many bytes begins at multiples of kTile, as swizzled tiles ask
constexpr unsigned kMostYields = 1 << 16;            // rounds of a cluster in which nothing but waiting happens
constexpr int kRankBits = 28;                        // where a shared address has its block's rank + 1, if it is another block's

struct Fiber {
  State state = State::fresh;
  void* stack = nullptr;
  void* pointer = nullptr;  // where it was left
  int parity = 0;           // of the slots that its next shuffle uses
  bool waited = false;      // for the kernel before this one
  unsigned char slot[2][16];
};

struct Machine {
  const Launch* launch = nullptr;
  std::vector<Fiber> fibers;
  std::vector<void*> stacks;  // free ones
  unsigned first_block = 0;   // blockIdx.x of the cluster's first
  Fiber* current = nullptr;
  void* scheduler = nullptr;
  // A block's shared memory: static variables from its begin on, the dynamic one up to its end, behind which no page is mapped.
  unsigned char* shared[kMostCluster] = {};
  std::vector<std::pair<const void*, size_t>> variables;  // places of static ones
  size_t static_bytes = 0;
  sigjmp_buf failed;
  bool running = false;
};
Machine machine;

void write_place(const char* what) {
  fprintf(stderr, "emulation: kernel %s, block (%u, %u, %u), thread %u: %s\n", machine.launch->name, block_index.x, block_index.y, block_index.z,
          thread_index.x, what);
}
[[noreturn]] void abandon(int32_t result) { siglongjmp(machine.failed, result); }

void on_signal(int number, siginfo_t* info, void*) {
  if (!machine.running) {
    signal(number, SIG_DFL);
    return;
  }
  char text[160];
  if (number == SIGSEGV || number == SIGBUS) {
    snprintf(text, sizeof text, "access to %p, outside of every allocation", info->si_addr);
    write_place(text);
    abandon(kIllegalAddress);
  }
  if (number == SIGFPE) {
    write_place("integer division by 0");
    abandon(kLaunchFailed);
  }
  write_place("undefined: a misaligned access, a signed overflow, or an index outside of a local array");
  abandon(kMisaligned);
}

class Signals {
 public:
  Signals() {
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    for (size_t i = 0; i < std::size(kNumbers); i++) sigaction(kNumbers[i], &action, &former_[i]);
  }
  ~Signals() {
    for (size_t i = 0; i < std::size(kNumbers); i++) sigaction(kNumbers[i], &former_[i], nullptr);
  }

 private:
  static constexpr int kNumbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
  struct sigaction former_[std::size(kNumbers)];
};

void* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail("no memory for the emulation");
  return p;
}

size_t fiber_number(const Fiber* f) { return static_cast<size_t>(f - machine.fibers.data()); }
uint32_t rank_of(const Fiber* f) { return static_cast<uint32_t>(fiber_number(f) / machine.launch->block[0]); }
size_t dynamic_bytes() {
  const size_t bytes = machine.launch->shared_bytes, to = bytes >= kOfTiles ? kTile : 16;
  return (bytes + to - 1) / to * to;
}

void leave() { emulation_switch(&machine.current->pointer, machine.scheduler); }

void fiber_main() {
  machine.launch->thread(machine.launch->params);
  if (machine.launch->early && !machine.current->waited) fail("a kernel that starts early and does not wait for the one before it");
  machine.current->state = State::done;
  leave();
  __builtin_unreachable();
}

void* take_stack() {
  if (machine.stacks.empty()) {
    char* memory = static_cast<char*>(map(kStackBytes));
    mprotect(memory, kPage, PROT_NONE);
    return memory;
  }
  void* stack = machine.stacks.back();
  machine.stacks.pop_back();
  return stack;
}

void start(Fiber& f) {
  f.stack = take_stack();
  void** top = reinterpret_cast<void**>(static_cast<char*>(f.stack) + kStackBytes) - 1;  // as after a call: 8 off 16
  *--top = reinterpret_cast<void*>(fiber_main);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f.pointer = top;
}

void resume(Fiber& f) {
  if (f.state == State::fresh) start(f);
  f.state = State::ready;
  machine.current = &f;
  thread_index = {static_cast<unsigned>(fiber_number(&f) % machine.launch->block[0]), 0, 0};
  block_index.x = machine.first_block + rank_of(&f);
  emulation_switch(&machine.scheduler, f.pointer);
  if (f.state != State::done) return;
  machine.stacks.push_back(f.stack);
  f.stack = nullptr;
}

// Opens one kind of barrier for fibers [first, end) if all that are left have reached it.
bool open_barrier(size_t first, size_t end, State kind) {
  size_t waiting = 0, gone = 0;
  for (size_t i = first; i < end; i++) {
    waiting += machine.fibers[i].state == kind;
    gone += machine.fibers[i].state == State::done;
  }
  if (!waiting || waiting + gone < end - first) return false;
  if (gone && kind != State::at_block_barrier) {  // those of a block count as the hardware does
    machine.current = &machine.fibers[first];
    fail("a shuffle or a barrier with threads that have left the kernel");
  }
  for (size_t i = first; i < end; i++) {
    if (machine.fibers[i].state == kind) machine.fibers[i].state = State::ready;
  }
  return true;
}

bool open_barriers() {
  const size_t all = machine.fibers.size(), block = machine.launch->block[0];
  bool opened = false;
  for (size_t begin = 0; begin < all; begin += block) {
    for (size_t first = begin; first < begin + block; first += kWarp)
      opened |= open_barrier(first, std::min(first + kWarp, begin + block), State::at_warp_barrier);
  }
  for (size_t begin = 0; begin < all; begin += block) opened |= open_barrier(begin, begin + block, State::at_block_barrier);
  return open_barrier(0, all, State::at_cluster_barrier) || opened;
}

// Every other round runs the threads backwards, so that a missing barrier shows.
void run_cluster(unsigned number) {
  for (Fiber& f : machine.fibers) f.state = State::fresh, f.parity = 0, f.waited = false;
  for (size_t i = 0; i < machine.launch->cluster; i++) {
    memset(machine.shared[i], 0xFF, machine.static_bytes);  // NaN
    memset(machine.shared[i] + kMostShared - dynamic_bytes(), 0xFF, dynamic_bytes());
  }
  unsigned yields = 0;
  for (unsigned round = number;; round++) {
    bool left = false, polls = false;
    const size_t n = machine.fibers.size();
    for (size_t i = 0; i < n; i++) {
      Fiber& f = machine.fibers[round % 2 ? n - 1 - i : i];
      if (f.state == State::fresh || f.state == State::ready) resume(f);
      left |= f.state != State::done;
      polls |= f.state == State::ready;
    }
    if (!left) return;
    yields = polls ? yields + 1 : 0;
    if ((!open_barriers() && !polls) || yields > kMostYields) fail("a barrier that not all threads reach");
  }
}

void prepare(const Launch& launch) {
  machine.launch = &launch;
  if (launch.block[1] != 1 || launch.block[2] != 1) fail("blocks of one dimension only");
  if (launch.shared_bytes > kMostDynamic - 1024) fail("more shared memory than a device has");
  if (!launch.cluster || launch.cluster > kMostCluster || launch.grid[0] % launch.cluster) fail("a cluster that does not fit the grid");
  machine.fibers.assign(size_t{launch.block[0]} * launch.cluster, Fiber{});
  machine.variables.clear();
  for (size_t i = 0; i < launch.cluster; i++) {
    if (!machine.shared[i]) {
      machine.shared[i] = static_cast<unsigned char*>(map(kMostShared + kPage));
      mprotect(machine.shared[i] + kMostShared, kPage, PROT_NONE);
    }
    memset(machine.shared[i], 0xFF, kMostStatic);  // what the kernel before this one left is not to be read
  }
  machine.static_bytes = 0;
}

}  // namespace

int32_t run(const Launch& launch) {
  static unsigned char* const signal_stack = static_cast<unsigned char*>(map(64 << 10));
  stack_t former, mine = {};
  mine.ss_sp = signal_stack, mine.ss_size = 64 << 10;
  sigaltstack(&mine, &former);
  int32_t result;
  {
    const Signals signals;
    result = sigsetjmp(machine.failed, 1);
    if (result == 0) {
      machine.running = true;
      block_size = {launch.block[0], launch.block[1], launch.block[2]};
      grid_size = {launch.grid[0], launch.grid[1], launch.grid[2]};
      prepare(launch);
      unsigned number = 0;
      for (unsigned z = 0; z < launch.grid[2]; z++) {
        for (unsigned y = 0; y < launch.grid[1]; y++) {
          for (unsigned x = 0; x < launch.grid[0]; x += launch.cluster) {
            block_index = {x, y, z};
            machine.first_block = x;
            run_cluster(number++);
          }
        }
      }
    }
    machine.running = false;
  }
  sigaltstack(&former, nullptr);
  return result;
}

void wait_for_earlier_kernel() { machine.current->waited = true; }
void block_barrier() {
  machine.current->state = State::at_block_barrier;
  leave();
}
void cluster_barrier() {
  machine.current->state = State::at_cluster_barrier;
  leave();
}
uint32_t cluster_rank() { return rank_of(machine.current); }
void warp_barrier() {
  machine.current->state = State::at_warp_barrier;
  leave();
}
void yield() { leave(); }

// Two slots in turn: who writes one again has passed a barrier after which all have read it.
void shuffle(void* to, const void* from, size_t bytes, int source) {
  Fiber& me = *machine.current;
  const int parity = me.parity;
  me.parity ^= 1;
  memcpy(me.slot[parity], from, bytes);
  warp_barrier();
  const size_t block = machine.launch->block[0], thread = fiber_number(&me) % block, from_thread = thread / kWarp * kWarp + static_cast<size_t>(source);
  if (source < 0 || source >= static_cast<int>(kWarp) || from_thread >= block) fail("a shuffle from a lane that does not exist");
  memcpy(to, machine.fibers[fiber_number(&me) - thread + from_thread].slot[parity], bytes);
}

unsigned char* dynamic_shared() { return machine.shared[cluster_rank()] + kMostShared - dynamic_bytes(); }

void* static_shared(const void* variable, size_t bytes) {
  unsigned char* const memory = machine.shared[cluster_rank()];
  for (const auto& [known, place] : machine.variables) {
    if (known == variable) return memory + place;
  }
  const size_t place = machine.static_bytes;
  machine.static_bytes += (bytes + 127) / 128 * 128;
  if (machine.static_bytes > kMostStatic) fail("more than 48 KB of static shared memory");
  machine.variables.emplace_back(variable, place);
  return memory + place;
}

uint32_t shared_address(const void* p) {
  const ptrdiff_t place = static_cast<const unsigned char*>(p) - machine.shared[cluster_rank()];
  if (place < 0 || place > static_cast<ptrdiff_t>(kMostShared)) fail("not an address of shared memory");
  return static_cast<uint32_t>(place);
}
uint32_t shared_address_of(uint32_t address, uint32_t rank) {
  if (rank >= machine.launch->cluster) fail("shared memory of a block that the cluster does not have");
  return address % (1u << kRankBits) + ((rank + 1) << kRankBits);
}
void* shared_pointer(uint32_t address) {
  const uint32_t rank = address >> kRankBits, place = address % (1u << kRankBits);
  if (place > kMostShared) fail("not an address of shared memory");
  return machine.shared[rank ? rank - 1 : cluster_rank()] + place;
}

void fail(const char* what) {
  write_place(what);
  abandon(kIllegalInstruction);
}

}  // namespace emulation
