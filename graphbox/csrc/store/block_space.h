// Several files as one space of bytes: each begins at a block, so that one memory serves them all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/block_file.h"

namespace graphbox {

struct FileSize {
  std::string path;
  std::uint64_t bytes;
};

class BlockSpace {
 public:
  BlockSpace(const std::vector<FileSize>& files, bool direct);

  struct Place {
    const BlockFile* file;
    std::uint64_t base;  // address of the file's first byte
    std::uint64_t end;   // address after its last byte
  };
  Place at(std::uint64_t address) const;

  std::size_t files() const { return files_.size(); }
  std::uint64_t base(std::size_t file) const { return bases_[file]; }
  const BlockFile& file(std::size_t file) const { return *files_[file]; }
  std::uint64_t bytes() const { return bases_.back(); }  // a multiple of kBlockBytes
  bool direct() const;

 private:
  std::vector<std::unique_ptr<BlockFile>> files_;
  std::vector<std::uint64_t> bases_;  // of the files, and the end of the last
};

}  // namespace graphbox
