// Replacing one file or folder by another in one step.
#pragma once

#include <string>

namespace graphbox {

// Lets two files or folders take each other's place; false where the file system cannot.
bool exchange_paths(const std::string& first, const std::string& second);

}  // namespace graphbox
