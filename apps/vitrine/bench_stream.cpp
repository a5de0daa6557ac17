// SPDX-License-Identifier: Apache-2.0
#include "bench_stream.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "terminal.h"

namespace vitrine::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kLine = 64;  // bytes that come from memory at once
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kChunk = 4 << 20;          // bytes written at once
constexpr std::int64_t kSpare = kGiB / 4;         // memory left to others
constexpr std::int64_t kShortestPass = kGiB / 2;  // bytes of a pass over the weights' own size

// ---- Reading ----

/// 16 bytes: what a plain x86-64 and any aarch64 load at once. Four make a line.
using Vector = std::uint64_t __attribute__((vector_size(16), may_alias));

/// Loads of every byte, and no more arithmetic than it takes to need them all.
template <bool kPrefetch>
__attribute__((noinline, no_sanitize("address", "thread", "undefined"))) std::uint64_t read_lines(
    const std::byte* begin, const std::byte* end, std::int64_t distance) {
  Vector a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
  for (const std::byte* at = begin; at < end; at += 2 * kLine) {
    if constexpr (kPrefetch) {
      __builtin_prefetch(at + distance, 0, 2);  // into the second level: the first is for what is used now
      __builtin_prefetch(at + distance + kLine, 0, 2);
    }
    const auto* v = reinterpret_cast<const Vector*>(at);
    a += v[0], b += v[1], c += v[2], d += v[3], e += v[4], f += v[5], g += v[6], h += v[7];
  }
  a += b + c + d + e + f + g + h;
  return a[0] + a[1];
}

std::uint64_t read_part(const std::byte* begin, const std::byte* end, std::int64_t distance) {
  return distance == 0 ? read_lines<false>(begin, end, 0) : read_lines<true>(begin, end, distance);
}

/// Seconds in which all threads together read [data, data + bytes) that many times.
double time_reading(const std::byte* data, std::int64_t bytes, std::int64_t times, int threads, std::int64_t distance) {
  std::barrier together(threads);
  std::atomic<std::uint64_t> sink{0};  // so that nothing is read in vain
  std::atomic<std::int64_t> nanoseconds{0};
  const auto work = [&](std::int64_t thread) {
    const std::byte* begin = data + bytes * thread / threads / kPage * kPage;
    const std::byte* end = data + bytes * (thread + 1) / threads / kPage * kPage;
    together.arrive_and_wait();
    const auto start = Clock::now();
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < times; ++i) sum += read_part(begin, end, distance);
    sink += sum;
    together.arrive_and_wait();
    // From when all are there to when all are done: the same on every thread, but for what it takes to wake up.
    if (thread == 0) nanoseconds = std::chrono::nanoseconds(Clock::now() - start).count();
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
  }
  return static_cast<double>(nanoseconds) * 1e-9;
}

// ---- The memory ----

/// What the file is full of: no two pages are alike, so that nothing can store them as one.
void fill(std::vector<std::uint64_t>& chunk, std::uint64_t& state) {
  for (std::uint64_t& word : chunk) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's linear congruential generator
    word = state;
  }
}

std::vector<fs::path> folders_to_try() {
  std::vector<fs::path> folders;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache != '\0') {
    folders.emplace_back(cache);
  } else if (home != nullptr && *home != '\0') {
    folders.push_back(fs::path(home) / ".cache");
  }
  std::error_code error;
  folders.push_back(fs::temp_directory_path(error));
  return folders;
}

/// Closes a descriptor.
struct Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

bool write_all(int descriptor, const void* data, std::size_t size) {
  const auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(descriptor, at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

/// A file without a name in that folder, mapped; null, and errno's words in `why`, when it cannot be had.
const std::byte* map_new_file(const fs::path& folder, std::int64_t bytes, const StreamTest::OnProgress& progress,
                              std::string& why) {
  std::string name = (folder / "vitrine-bench-XXXXXX").string();
  const Descriptor file(::mkstemp(name.data()));
  if (file.number >= 0) ::unlink(name.c_str());
  std::vector<std::uint64_t> chunk(kChunk / sizeof(std::uint64_t));
  std::uint64_t state = 1;
  bool fine = file.number >= 0;
  for (std::int64_t done = 0; fine && done < bytes; done += kChunk) {
    fill(chunk, state);
    fine = write_all(file.number, chunk.data(), kChunk);
    progress(done, bytes);
  }
  void* data = MAP_FAILED;
  if (fine) {
    // Populated: the first touch of a page is no reading of memory.
    data = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED | MAP_POPULATE, file.number, 0);
  }
  if (data != MAP_FAILED) return static_cast<const std::byte*>(data);
  why = fmt::format("{}: {}", folder.string(), std::strerror(errno));
  return nullptr;
}

const std::byte* map_anonymous(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorCode::kIo,
                fmt::format("the stream figure needs {} of memory: {}", short_bytes(bytes), std::strerror(errno)));
  }
  std::memset(data, 1, size);  // or all pages would be the same one
  return static_cast<const std::byte*>(data);
}

/// "307200K" in a file; 0 when it is not there.
std::int64_t read_size(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t size = 0;
  char unit = ' ';
  if (!(file >> size)) return 0;
  file >> unit;
  return size << (unit == 'K' ? 10 : unit == 'M' ? 20 : 0);
}

}  // namespace

std::int64_t last_level_cache_bytes() {
  const fs::path caches = "/sys/devices/system/cpu/cpu0/cache";
  std::int64_t last_level = 0;
  std::int64_t bytes = 0;
  for (int index = 0; index < 8; ++index) {
    const fs::path cache = caches / fmt::format("index{}", index);
    const std::int64_t level = read_size(cache / "level");
    if (level <= last_level && level < 3) continue;
    if (const std::int64_t size = read_size(cache / "size"); size > 0) {
      last_level = level;
      bytes = size;
    }
  }
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (bytes == 0) bytes = std::max<std::int64_t>(0, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
  return bytes;
}

StreamTest::StreamTest(int threads, std::int64_t own_bytes, const OnProgress& progress) : threads_(threads) {
  const std::int64_t cache = last_level_cache_bytes();
  std::int64_t bytes = std::clamp(4 * cache, 2 * kGiB, 3 * kGiB);
  const std::int64_t available = available_memory() - kSpare;
  if (bytes > available) {
    // What does not stay in memory would be read from the disk.
    bytes = std::max(available, kSpare);
    note_ = fmt::format("less than 4 caches of {}, for want of memory", short_bytes(cache));
  }
  bytes = bytes / kChunk * kChunk;
  std::string why;
  for (const fs::path& folder : folders_to_try()) {
    data_ = map_new_file(folder, bytes, progress, why);
    if (data_ != nullptr) break;
  }
  is_file_ = data_ != nullptr;
  if (!is_file_) {
    data_ = map_anonymous(bytes);
    note_ += fmt::format("{}anonymous memory, since no file could be written ({})", note_.empty() ? "" : "; ", why);
  }
  memory_.bytes = bytes;
  if (own_bytes < 2 * cache && own_bytes < bytes) {
    own_.bytes = std::max(own_bytes / kPage, std::int64_t{threads}) * kPage;
    own_.times = kShortestPass / own_.bytes + 1;
  }
  for (Range* range : {&memory_, &own_}) {
    if (range->bytes > 0) time_reading(data_, range->bytes, 1, threads_, kDistances[1]);
  }
}

StreamTest::~StreamTest() { ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(memory_.bytes)); }

void StreamTest::read(Range& range) {
  for (std::size_t i = 0; i < kDistances.size(); ++i) {
    const double seconds = time_reading(data_, range.bytes, range.times, threads_, kDistances[i]);
    range.samples[i].push_back(static_cast<double>(range.bytes * range.times) / seconds * 1e-9);
  }
}

void StreamTest::pass() {
  read(memory_);
  if (own_.bytes > 0) read(own_);
}

StreamRate StreamTest::Range::best() const {
  StreamRate best{.bytes = bytes};
  for (std::size_t i = 0; i < kDistances.size(); ++i) {
    const Figure figure = figure_of(samples[i]);
    if (figure.median <= best.gb_per_s.median) continue;
    best.gb_per_s = figure;
    best.distance = kDistances[i];
  }
  return best;
}

StreamResult StreamTest::result() const {
  return {memory_.best(), own_.bytes > 0 ? own_.best() : StreamRate{}, is_file_, note_};
}

}  // namespace vitrine::app
