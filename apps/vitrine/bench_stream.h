// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench_numbers.h"

namespace vitrine::app {

/// How fast a number of bytes was read, with the prefetch distance that was best.
struct StreamRate {
  std::int64_t bytes = 0;
  std::int64_t distance = 0;
  Figure gb_per_s;  // a sample a pass
};

struct StreamResult {
  StreamRate memory;    // what no cache holds
  StreamRate own;       // as many bytes as the weights have, where the caches may hold them; bytes 0: not measured
  bool is_file = true;  // false: anonymous memory
  std::string note;     // what is unusual about it
  double gb_per_s() const { return std::max(memory.gb_per_s.median, own.gb_per_s.median); }
};

/// Reads memory as the matrix products of a decode step do, and nothing else: each thread its own contiguous part of a
/// mapped file. What it reaches is the bound of every step that reads its weights once.
class StreamTest {
 public:
  using OnProgress = std::function<void(std::int64_t done, std::int64_t total)>;

  /// Writes and maps the file, whose name is gone at once; anonymous memory where no folder has room for it. Throws
  /// Error(kIo) when there is no memory either. `own_bytes`: what a step reads of the weights.
  StreamTest(int threads, std::int64_t own_bytes, const OnProgress& progress);
  ~StreamTest();
  StreamTest(const StreamTest&) = delete;
  StreamTest& operator=(const StreamTest&) = delete;

  /// Reads everything once with each prefetch distance.
  void pass();
  std::int64_t passes() const { return std::ssize(memory_.samples[0]); }
  StreamResult result() const;

 private:
  static constexpr std::array<std::int64_t, 3> kDistances = {0, 4096, 8192};
  /// Bytes read several times in a row, so that a pass is long enough to be timed, and the samples by distance.
  struct Range {
    std::int64_t bytes = 0, times = 1;
    std::array<std::vector<double>, kDistances.size()> samples;
    StreamRate best() const;
  };

  void read(Range& range);

  int threads_;
  const std::byte* data_ = nullptr;
  Range memory_, own_;
  bool is_file_ = false;
  std::string note_;
};

/// Bytes of the last-level cache that the first core sees; 0 when the system does not say.
std::int64_t last_level_cache_bytes();

}  // namespace vitrine::app
