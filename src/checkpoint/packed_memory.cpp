// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_memory.h"

#include <sys/mman.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "checkpoint/packed_format.h"

namespace vitrine {
namespace {

/// Matrices are read from end to end for every token: with large pages the translation of addresses costs nothing.
constexpr std::int64_t kLargePage = std::int64_t{2} << 20;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }
constexpr std::size_t as_size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

PackedMemory::PackedMemory(std::int64_t capacity) : capacity_(round_up(capacity, kLargePage)) {
  const std::int64_t reserved = capacity_ + kLargePage;
  // Without access it is no memory yet, for a system that counts what it has promised.
  void* address = ::mmap(nullptr, as_size(reserved), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(ErrorCode::kIo, "cannot reserve " + std::to_string(reserved) +
                                    " bytes of address space for packed weights: " + std::strerror(errno));
  }
  auto* const begin = static_cast<std::byte*>(address);
  const auto misplaced = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % kLargePage);
  const std::int64_t skipped = misplaced == 0 ? 0 : kLargePage - misplaced;
  data_ = begin + skipped;
  if (skipped > 0) ::munmap(begin, as_size(skipped));
  ::munmap(data_ + capacity_, as_size(kLargePage - skipped));
  ::madvise(data_, as_size(capacity_), MADV_HUGEPAGE);  // a wish
}

PackedMemory::~PackedMemory() {
  if (capacity_ > 0) ::munmap(data_, as_size(capacity_));
}

void PackedMemory::grow(std::int64_t end) {
  VITRINE_CHECK(end <= capacity_);
  if (end <= grown_) return;
  // Whole large pages, so that one can lie across two entries.
  end = round_up(end, kLargePage);
  if (::mprotect(data_ + grown_, as_size(end - grown_), PROT_READ | PROT_WRITE) != 0) {
    throw Error(ErrorCode::kIo, "cannot get " + std::to_string(end - grown_) +
                                    " bytes of memory for packed weights: " + std::strerror(errno));
  }
  grown_ = end;
}

bool PackedMemory::show_file(int fd, std::int64_t begin, std::int64_t bytes) noexcept {
  // The pages have just been written, so they are at hand: no faults at their first use.
  return ::mmap(data_ + begin, as_size(round_up(bytes, kPackedAlignment)), PROT_READ,
                MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, begin) != MAP_FAILED;
}

void PackedMemory::leave_file(int fd, std::int64_t end) noexcept {
  // From the end, a piece at a time, so that there never is more than one piece in both places.
  constexpr std::int64_t kPiece = std::int64_t{64} << 20;
  end = round_up(end, kPackedAlignment);
  while (end > 0) {
    const std::int64_t begin = (end - 1) / kPiece * kPiece;
    const std::size_t size = as_size(end - begin);
    void* const copy = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) return;
    ::madvise(copy, size, MADV_HUGEPAGE);
    std::memcpy(copy, data_ + begin, size);
    if (::mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + begin) == MAP_FAILED) {
      ::munmap(copy, size);
      return;
    }
    if (::ftruncate(fd, begin) != 0) {
      // It keeps its space on the disk until it is closed, which is soon.
    }
    end = begin;
  }
}

void PackedMemory::seal(std::int64_t end) noexcept {
  end = std::max(kPackedAlignment, round_up(end, kPackedAlignment));
  ::mprotect(data_, as_size(std::min(end, grown_)), PROT_READ);  // a guard, not a need
  if (end < capacity_) ::munmap(data_ + end, as_size(capacity_ - end));
  capacity_ = std::min(capacity_, end);
}

}  // namespace vitrine
