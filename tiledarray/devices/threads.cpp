// The host thread pool: shares the blocks of one kernel launch out to threads.
//
// One pool a process, one parallel launch at a time.  The launching thread takes part.  A launch
// is published in `state` (number, whether threads may still join, how many have joined), so a
// thread that wakes up too late finds the door closed and never touches a finished launch.
//
// A forked child starts with a fresh pool: its parent's workers do not exist in it.

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__x86_64__) || defined(__i386__)
#define TA_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TA_PAUSE() asm volatile("yield")
#else
#define TA_PAUSE() ((void)0)
#endif

#define TA_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Kernel = void (*)(const void*, int64_t, int64_t, char*);
using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(30);
constexpr uint64_t kOpen = uint64_t(1) << 31;
constexpr uint64_t kJoined = kOpen - 1;
constexpr int64_t kAlignment = 64;
constexpr int kOutOfMemory = 1;

// Memory that a kernel uses inside one block of work.  Each thread keeps its own and grows it.
struct Scratch {
    char* data = nullptr;
    int64_t bytes = 0;
    ~Scratch() { std::free(data); }

    bool reserve(int64_t wanted) {
        if (wanted <= bytes) return true;
        std::free(data);
        wanted = (wanted + kAlignment - 1) / kAlignment * kAlignment;
        data = static_cast<char*>(std::aligned_alloc(kAlignment, wanted));
        bytes = data ? wanted : 0;
        return data != nullptr;
    }
};

thread_local Scratch scratch;

// What is to be run, as Python packs it: the kernel's arguments follow.
struct Launch {
    Kernel kernel;
    int64_t blocks;
    int64_t grain;
    int64_t scratch_bytes;

    void run(int64_t begin, int64_t end) const { kernel(this + 1, begin, end, scratch.data); }
};

struct Job {
    const Launch* launch;
    alignas(64) std::atomic<int64_t> next;
};

struct Pool {
    std::mutex launching;        // held for a whole parallel launch
    std::mutex sleeping;         // guards the condition variables and `workers`
    std::condition_variable wake;
    std::condition_variable idle;
    alignas(64) std::atomic<uint64_t> state{0};  // launch number << 32 | kOpen | threads joined
    alignas(64) std::atomic<int> sleepers{0};
    std::atomic<bool> waiting{false};  // the launching thread sleeps on `idle`
    std::atomic<bool> stopping{false};
    int workers = 0;
    int wanted = 0;              // workers to have; set by each launch
    Job job;
};

alignas(Pool) unsigned char storage[sizeof(Pool)];  // never destroyed: workers outlive `exit`
Pool* pool = new (storage) Pool;

template <class Condition>
bool spin_until(Condition condition) {
    const auto end = Clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (condition()) return true;
            TA_PAUSE();
        }
    } while (Clock::now() < end);
    return false;
}

void work(Job& job) {
    const Launch& launch = *job.launch;
    for (;;) {
        const int64_t begin = job.next.fetch_add(launch.grain, std::memory_order_relaxed);
        if (begin >= launch.blocks) return;
        launch.run(begin, std::min(begin + launch.grain, launch.blocks));
    }
}

// A launch other than the one numbered `seen` that may still be joined.
bool offered(uint64_t state, uint64_t seen) { return (state & kOpen) && (state >> 32) != seen; }

// Sleep until there is something new to join; false: the pool is being taken down.
bool wait_for_work(uint64_t seen) {
    auto ready = [seen] {
        return pool->stopping.load(std::memory_order_relaxed) ||
               offered(pool->state.load(), seen);
    };
    if (!spin_until(ready)) {
        std::unique_lock<std::mutex> lock(pool->sleeping);
        pool->sleepers.fetch_add(1);
        pool->wake.wait(lock, ready);
        pool->sleepers.fetch_sub(1);
    }
    return !pool->stopping.load();
}

void leave() {
    const uint64_t before = pool->state.fetch_sub(1);
    const bool last = (before & kJoined) == 1 && !(before & kOpen);
    if (last && pool->waiting.load()) {
        std::lock_guard<std::mutex> lock(pool->sleeping);
        pool->idle.notify_all();
    }
}

void* worker_main(void*) {
    uint64_t seen = 0;
    while (wait_for_work(seen)) {
        uint64_t now = pool->state.load(std::memory_order_acquire);
        while (offered(now, seen) && !pool->state.compare_exchange_weak(now, now + 1)) {
        }
        if (!offered(now, seen)) continue;
        seen = now >> 32;
        // A worker without room for scratch stays out; the launching thread does its share.
        if (scratch.reserve(pool->job.launch->scratch_bytes)) work(pool->job);
        leave();
    }
    std::lock_guard<std::mutex> lock(pool->sleeping);
    --pool->workers;
    pool->idle.notify_all();
    return nullptr;
}

// Start the workers that are missing.  Signals are left to the threads of the interpreter.
void start_workers() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (pool->workers < pool->wanted) {
        pthread_t thread;
        {
            std::lock_guard<std::mutex> lock(pool->sleeping);
            ++pool->workers;
        }
        if (pthread_create(&thread, &attributes, worker_main, nullptr) != 0) {
            std::lock_guard<std::mutex> lock(pool->sleeping);
            pool->wanted = --pool->workers;  // the system allows no more: do with these
        }
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void stop_workers() {
    std::unique_lock<std::mutex> lock(pool->sleeping);
    pool->stopping.store(true);
    pool->wake.notify_all();
    pool->idle.wait(lock, [] { return pool->workers == 0; });
    pool->stopping.store(false);
}

void publish() {
    const uint64_t number = (pool->state.load(std::memory_order_relaxed) >> 32) + 1;
    pool->state.store((number & 0xffffffff) << 32 | kOpen);
    const int sleepers = pool->sleepers.load();
    if (sleepers == 0) return;
    const Launch& launch = *pool->job.launch;
    const int64_t chunks = (launch.blocks + launch.grain - 1) / launch.grain;
    { std::lock_guard<std::mutex> lock(pool->sleeping); }  // none is between its look and its sleep
    if (chunks - 1 >= sleepers) {
        pool->wake.notify_all();
    } else {
        for (int64_t i = 1; i < chunks; ++i) pool->wake.notify_one();
    }
}

// Let nobody else join, and wait for those who did.
void finish() {
    auto done = [] { return (pool->state.load() & kJoined) == 0; };
    pool->state.fetch_and(~kOpen);
    if (spin_until(done)) return;
    pool->waiting.store(true);
    std::unique_lock<std::mutex> lock(pool->sleeping);
    pool->idle.wait(lock, done);
    pool->waiting.store(false);
}

void after_fork_in_child() { pool = new (storage) Pool; }

std::atomic<int> extra_threads{0};  // outlives a fork, unlike the pool

__attribute__((constructor)) void install() {
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
}

}  // namespace

// Set how many threads work, the launching one included.  A later launch starts them.
TA_EXPORT void ta_threads(int threads) {
    std::lock_guard<std::mutex> lock(pool->launching);
    const int extra = threads > 1 ? threads - 1 : 0;
    extra_threads.store(extra);
    if (pool->workers > extra) stop_workers();
}

// Run all blocks of a launch, `grain` (at least 1) at a time.  Not 0: no room for scratch.
TA_EXPORT int ta_run(const Launch* launch) {
    if (launch->blocks <= 0) return 0;
    if (!scratch.reserve(launch->scratch_bytes)) return kOutOfMemory;
    if (launch->blocks <= launch->grain || extra_threads.load(std::memory_order_relaxed) == 0) {
        launch->run(0, launch->blocks);
        return 0;
    }
    std::lock_guard<std::mutex> lock(pool->launching);
    pool->wanted = extra_threads.load();
    if (pool->workers < pool->wanted) start_workers();
    Job& job = pool->job;
    job.launch = launch;
    job.next.store(0, std::memory_order_relaxed);
    publish();
    work(job);
    finish();
    return 0;
}

// ---- several steps of a loop at once, tile by tile (execution/tiled_steps.py) ------------------
//
// A launch whose blocks are workers, each with memory of its own: copies of the tile that it is at.

namespace {

constexpr int kAxes = 3;

// An array, and where a worker has its tile of it.
struct Tiled {
    char* whole;
    char* tile;
};

struct Step {
    Kernel kernel;
    const void* args;
    int64_t blocks;
};

struct Worker {
    int64_t* number;  // of the step that it does
    char* scratch;
    const Step* steps;
    const Tiled* inputs;
    const Tiled* outputs;
};

struct Place {
    int64_t start[kAxes];
    int64_t core[kAxes];
    int64_t end[kAxes];
};

struct Tiles {
    std::atomic<int64_t>* next;
    int64_t count;
    const Place* places;
    int64_t shape[kAxes];  // of the arrays
    int64_t tile[kAxes];
    int64_t inputs, outputs;
    const int64_t* widths;  // bytes of an element, of inputs then outputs
    int64_t steps, launches;  // and of each the launches
    int64_t first, by;  // numbers of the steps
    const Worker* workers;
};

// Past the cache, where that is possible: nobody reads it soon.
void store(char* to, const char* from, int64_t bytes) {
#if defined(__SSE2__)
    const int64_t head = std::min<int64_t>(bytes, -reinterpret_cast<intptr_t>(to) & 15);
    std::memcpy(to, from, head);
    to += head, from += head, bytes -= head;
    for (; bytes >= 16; to += 16, from += 16, bytes -= 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
    std::memcpy(to, from, bytes);
}

void copy_in(const Tiles& tiles, const Place& at, const Tiled& array, int64_t width) {
    const int64_t row = tiles.tile[2] * width;
    char* to = array.tile;
    for (int64_t i = at.start[0]; i < at.start[0] + tiles.tile[0]; ++i)
        for (int64_t j = at.start[1]; j < at.start[1] + tiles.tile[1]; ++j, to += row)
            std::memcpy(to, array.whole + ((i * tiles.shape[1] + j) * tiles.shape[2] +
                                           at.start[2]) * width, row);
}

void copy_out(const Tiles& tiles, const Place& at, const Tiled& array, int64_t width) {
    const int64_t row = (at.end[2] - at.core[2]) * width;
    for (int64_t i = at.core[0]; i < at.end[0]; ++i)
        for (int64_t j = at.core[1]; j < at.end[1]; ++j)
            store(array.whole + ((i * tiles.shape[1] + j) * tiles.shape[2] + at.core[2]) * width,
                  array.tile + (((i - at.start[0]) * tiles.tile[1] + j - at.start[1]) *
                                tiles.tile[2] + at.core[2] - at.start[2]) * width, row);
}

}  // namespace

TA_EXPORT void ta_tiles(const void* args, int64_t begin, int64_t end, char*) {
    const Tiles& tiles = *static_cast<const Tiles*>(args);
    for (int64_t k = begin; k < end; ++k) {
        const Worker& worker = tiles.workers[k];
        for (;;) {
            const int64_t number = tiles.next->fetch_add(1, std::memory_order_relaxed);
            if (number >= tiles.count) break;
            const Place& at = tiles.places[number];
            for (int64_t i = 0; i < tiles.inputs; ++i)
                copy_in(tiles, at, worker.inputs[i], tiles.widths[i]);
            const Step* step = worker.steps;
            for (int64_t i = 0; i < tiles.steps; ++i) {
                *worker.number = tiles.first + i * tiles.by;
                for (int64_t j = 0; j < tiles.launches; ++j, ++step)
                    step->kernel(step->args, 0, step->blocks, worker.scratch);
            }
            for (int64_t i = 0; i < tiles.outputs; ++i)
                copy_out(tiles, at, worker.outputs[i], tiles.widths[tiles.inputs + i]);
        }
    }
#if defined(__SSE2__)
    _mm_sfence();
#endif
}
