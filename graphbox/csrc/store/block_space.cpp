#include "store/block_space.h"

#include <algorithm>

#include "errors/error.h"

namespace graphbox {

BlockSpace::BlockSpace(const std::vector<FileSize>& files, bool direct) : bases_{0} {
  if (files.empty()) {
    throw Error(ErrorKind::kUsage, "expected one file or more, received none", "files");
  }
  for (const FileSize& each : files) {
    files_.push_back(std::make_unique<BlockFile>(each.path, each.bytes, direct));
    bases_.push_back(bases_.back() + (each.bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes);
  }
}

BlockSpace::Place BlockSpace::at(std::uint64_t address) const {
  const auto after = std::upper_bound(bases_.begin(), bases_.end() - 1, address);
  const auto number = static_cast<std::size_t>(after - bases_.begin()) - 1;
  return {files_[number].get(), bases_[number], bases_[number] + files_[number]->bytes()};
}

bool BlockSpace::direct() const {
  return std::all_of(files_.begin(), files_.end(), [](const auto& file) { return file->direct(); });
}

}  // namespace graphbox
