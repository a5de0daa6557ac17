// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace vitrine {
namespace {

/// An open read-only descriptor of a regular file, with its size.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) {
      const int error = errno;
      const auto code = error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
      throw Error(code, path.string() + ": cannot be opened: " + std::strerror(error));
    }
    struct stat status {};
    if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd_);
      throw Error(ErrorCode::kBadFile, path.string() + ": expected a regular file");
    }
    size_ = static_cast<std::size_t>(status.st_size);
    modified_ns_ = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  }
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int fd() const noexcept { return fd_; }
  std::size_t size() const noexcept { return size_; }
  std::int64_t modified_ns() const noexcept { return modified_ns_; }

 private:
  int fd_;
  std::size_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const OpenFile file(path);
  size_ = file.size();
  modified_ns_ = file.modified_ns();
  if (size_ == 0) return;  // mmap refuses empty mappings; an empty span serves as well
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (address == MAP_FAILED) {
    throw Error(ErrorCode::kIo, path.string() + ": cannot be mapped: " + std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_ns_(other.modified_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  return *this;
}

void MappedFile::populate(std::size_t begin, std::size_t end) const noexcept {
#ifndef MADV_POPULATE_READ
  constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14; older kernels answer EINVAL
#endif
  constexpr std::size_t kPage = 4096;
  begin = begin / kPage * kPage;
  if (end > size_) end = size_;
  if (begin >= end) return;
  auto* address = const_cast<std::byte*>(data_) + begin;
  if (::madvise(address, end - begin, MADV_POPULATE_READ) != 0) ::madvise(address, end - begin, MADV_WILLNEED);
}

void MappedFile::release_pages() const noexcept {
  if (size_ > 0) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const OpenFile file(path);
  if (file.size() > max_bytes) {
    throw Error(ErrorCode::kTooLarge, path.string() + ": expected at most " + std::to_string(max_bytes) +
                                          " bytes, found " + std::to_string(file.size()));
  }
  std::string text;
  text.reserve(file.size() + kRoomBehindText);
  text.resize(file.size());
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.fd(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error(ErrorCode::kIo, path.string() + ": cannot be read: " + std::strerror(errno));
    if (count == 0) break;  // shrank meanwhile: what is there will be judged by its parser
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

}  // namespace vitrine
