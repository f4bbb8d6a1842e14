// The errors of the native core. Each kind becomes the Python exception of the same name
// (graphbox/errors.py); bind/errors.cpp translates.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace graphbox {

enum class ErrorKind { kUsage, kData, kFormat, kNotFound, kDoesNotFit, kFailure };

// Error with the expected and the received value (`what()`), the place, and a hint.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message, std::string where = {}, std::string hint = {})
      : std::runtime_error(message), kind_(kind), where_(std::move(where)), hint_(std::move(hint)) {}

  ErrorKind kind() const noexcept { return kind_; }
  const std::string& where() const noexcept { return where_; }
  const std::string& hint() const noexcept { return hint_; }

 private:
  ErrorKind kind_;
  std::string where_;
  std::string hint_;
};

}  // namespace graphbox
