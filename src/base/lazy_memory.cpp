// SPDX-License-Identifier: Apache-2.0
#include "base/lazy_memory.h"

#include <sys/mman.h>
#include <vitrine/error.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace vitrine {

LazyMemory::LazyMemory(std::int64_t bytes, const char* what, bool large_pages) : size_(bytes) {
  if (bytes == 0) return;
  void* address = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(ErrorCode::kIo,
                "cannot reserve " + std::to_string(bytes) + " bytes for " + what + ": " + std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(address);
  if (large_pages) ::madvise(address, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a wish
}

LazyMemory::~LazyMemory() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(size_));
}

}  // namespace vitrine
