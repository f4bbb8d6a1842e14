// Names that stand for values of the native core.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "errors/error.h"

namespace graphbox::bind {

// Value of `name`; `expected` lists all names, for the message.
template <typename Value, std::size_t kCount>
Value value_of(const std::array<std::pair<const char*, Value>, kCount>& names, const std::string& name,
               const char* expected, const char* where) {
  for (const auto& [known, value] : names) {
    if (name == known) {
      return value;
    }
  }
  throw Error(ErrorKind::kUsage, std::string(where) + " must be " + expected + ", received `" + name + "`", where);
}

template <typename Value, std::size_t kCount>
const char* name_of(const std::array<std::pair<const char*, Value>, kCount>& names, Value value) {
  for (const auto& [name, known] : names) {
    if (value == known) {
      return name;
    }
  }
  return "";
}

}  // namespace graphbox::bind
