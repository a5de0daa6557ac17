// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "checkpoint/packed_folder.h"

namespace vitrine {

namespace fs = std::filesystem;

PackedFile::~PackedFile() {
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
  if (fd_ >= 0) ::close(fd_);  // and with it the lock
}

bool PackedFile::fail(const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  problem_ = path_.string() + ": cannot be " + what + ": " + (full ? "the disk is full" : std::strerror(error));
  return false;
}

bool PackedFile::create_folder() {
  const fs::path folder = path_.parent_path();
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  // The user's alone, as the XDG base directory specification has it for caches.
  if (::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return true;
  problem_ = folder.string() + ": cannot be created: " + std::strerror(errno);
  return false;
}

/// The lock says that the writer lives, see remove_abandoned. Where there are no locks it stays without.
bool PackedFile::open_new() {
  constexpr int kAttempts = 100;  // another process may take one for abandoned before it is locked
  for (int i = 0; i < kAttempts; ++i) {
    unfinished_ = unfinished_path(path_);
    fd_ = ::open(unfinished_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) {
      const int error = errno;
      unfinished_.clear();
      return fail("created", error);
    }
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
    struct stat status {};
    if (::fstat(fd_, &status) == 0 && status.st_nlink > 0) return true;
    ::close(fd_);
    fd_ = -1;
  }
  unfinished_.clear();
  return fail("created", EEXIST);
}

bool PackedFile::create(std::int64_t expected_bytes) {
  if (!create_folder() || !open_new()) return false;
  // Better not to begin than to fill the disk to the last byte and then give up.
  struct statvfs space {};
  if (::fstatvfs(fd_, &space) == 0 && space.f_frsize > 0 &&
      space.f_bavail < static_cast<std::uint64_t>(expected_bytes) / space.f_frsize) {
    problem_ = path_.parent_path().string() + ": expected " + size_text(expected_bytes) + " of free space, found " +
               size_text(static_cast<std::int64_t>(space.f_bavail * space.f_frsize));
    return false;
  }
  return true;
}

bool PackedFile::write(std::span<const std::byte> bytes, std::int64_t offset) {
  // Beyond the limit the system would not only refuse, but end the process.
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<std::uint64_t>(offset) + bytes.size() > limit.rlim_cur) {
    return fail("written", EFBIG);
  }
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail("written", count < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return true;
}

bool PackedFile::publish() {
  // Without this a power failure could leave the name with zeros behind it, and the checksum does not cover the data.
  if (::fsync(fd_) != 0) return fail("written", errno);
  if (::rename(unfinished_.c_str(), path_.c_str()) != 0) return fail("put in place", errno);
  unfinished_.clear();
  return true;
}

}  // namespace vitrine
