// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/lazy_memory.h"
#include "tensor/tensor.h"

namespace vitrine {

/// Memory for the activations of one step: allocated once, handed out front to back, taken back all at once.
/// Pages are touched only when used, so a generous capacity costs nothing.
class Workspace {
 public:
  /// Throws Error(kIo) when the system refuses the address space.
  explicit Workspace(std::int64_t capacity_bytes) : memory_(capacity_bytes, "activations", /*large_pages=*/true) {}

  /// Uninitialised; every row starts on a cache line. A bug of ours (VITRINE_CHECK) when the capacity is exceeded.
  template <class T>
  MatrixView<T> matrix(std::int64_t rows, std::int64_t cols) {
    const std::int64_t stride = padded_bytes<T>(1, cols) / static_cast<std::int64_t>(sizeof(T));
    return {static_cast<T*>(take(padded_bytes<T>(rows, cols))), rows, cols, stride};
  }

  /// What matrix<T>(rows, cols) takes: for computing the capacity.
  template <class T>
  static constexpr std::int64_t padded_bytes(std::int64_t rows, std::int64_t cols) {
    return rows * ((cols * static_cast<std::int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine);
  }

  std::int64_t capacity() const noexcept { return memory_.size(); }
  std::int64_t used() const noexcept { return used_; }
  /// Takes back everything handed out since used() was `mark`.
  void rewind(std::int64_t mark) noexcept { used_ = mark; }

 private:
  static constexpr std::int64_t kLine = 64;

  void* take(std::int64_t bytes) {
    VITRINE_CHECK(bytes >= 0 && bytes <= memory_.size() - used_);
    std::byte* taken = memory_.data() + used_;
    used_ += bytes;
    return taken;
  }

  LazyMemory memory_;
  std::int64_t used_ = 0;
};

/// Gives back at the end of a scope what was taken in it.
class WorkspaceScope {
 public:
  explicit WorkspaceScope(Workspace& workspace) : workspace_(workspace), mark_(workspace.used()) {}
  ~WorkspaceScope() { workspace_.rewind(mark_); }
  WorkspaceScope(const WorkspaceScope&) = delete;
  WorkspaceScope& operator=(const WorkspaceScope&) = delete;

 private:
  Workspace& workspace_;
  std::int64_t mark_;
};

}  // namespace vitrine
