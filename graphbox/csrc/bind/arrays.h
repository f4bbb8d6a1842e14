// Conversion of arrays at the border to Python: in as views, out as pooled memory that Python owns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "errors/error.h"
#include "memory/buffer.h"
#include "sample/adjacency.h"

namespace graphbox::bind {

namespace nb = nanobind;

template <typename T, int kDimensions = 1>
using InputArray = nb::ndarray<const T, nb::ndim<kDimensions>, nb::c_contig, nb::device::cpu>;
template <typename T, int kDimensions = 1>
using OutputArray = nb::ndarray<T, nb::ndim<kDimensions>, nb::c_contig, nb::device::cpu>;
using AnyInputArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T, int kDimensions = 1>
using NumpyArray = nb::ndarray<nb::numpy, T, nb::ndim<kDimensions>, nb::c_contig>;

template <typename T>
std::span<const T> view(const InputArray<T>& array) {
  return {array.data(), array.shape(0)};
}

// Gives the memory to a NumPy array of `shape`; it returns to the pool when Python drops the array.
template <typename T, int kDimensions = 1>
NumpyArray<T, kDimensions> to_numpy(PooledArray<T>&& array, const std::size_t (&shape)[kDimensions]) {
  auto* owner = new PooledArray<T>(std::move(array));
  owner->reserve(1);  // NumPy wants an address even where there are no elements
  const nb::capsule capsule(owner, [](void* pointer) noexcept { delete static_cast<PooledArray<T>*>(pointer); });
  return NumpyArray<T, kDimensions>(owner->data(), kDimensions, shape, capsule);
}

template <typename T>
NumpyArray<T> to_numpy(PooledArray<T>&& array) {
  const std::size_t shape[1] = {static_cast<std::size_t>(array.size())};
  return to_numpy<T, 1>(std::move(array), shape);
}

// A sequence of objects can hold None, which arrives as a null pointer.
template <typename T>
void refuse_none(const std::vector<const T*>& objects, const char* where) {
  for (const T* object : objects) {
    if (object == nullptr) {
      throw Error(ErrorKind::kUsage, "expected objects, received None among them", where);
    }
  }
}

// New lists of some rows, with the arrays that hold them.
struct OverlayArrays {
  InputArray<std::int64_t> rows;
  InputArray<std::int64_t> indptr;
  AnyInputArray indices;
  InputArray<std::int64_t> edge_ids;
  Overlay overlay;
};

// Checks the dtype of `indices`; the values are checked when they are read.
inline Adjacency to_adjacency(const InputArray<std::int64_t>& indptr, const AnyInputArray& indices, std::string name,
                              const OverlayArrays* live = nullptr) {
  // Where None may stand for a whole tuple of arrays, it arrives in place of each of them, too.
  if (!indptr.is_valid() || !indices.is_valid()) {
    throw Error(ErrorKind::kUsage, "expected the arrays indptr and indices, received None for one", std::move(name));
  }
  if (indptr.shape(0) == 0) {
    throw Error(ErrorKind::kData, "indptr must have at least one entry, received none", std::move(name));
  }
  Adjacency adjacency;
  adjacency.indptr = indptr.data();
  adjacency.num_rows = static_cast<std::int64_t>(indptr.shape(0)) - 1;
  adjacency.num_edges = static_cast<std::int64_t>(indices.shape(0));
  adjacency.name = std::move(name);
  // The pointer that is set tells the dtype, also where there are no edges and so, of some libraries, no address.
  static constexpr std::int64_t kNothing = 0;
  const void* const data = indices.data() != nullptr ? indices.data() : &kNothing;
  if (indices.dtype() == nb::dtype<std::int32_t>()) {
    adjacency.narrow_indices = static_cast<const std::int32_t*>(data);
  } else if (indices.dtype() == nb::dtype<std::int64_t>()) {
    adjacency.wide_indices = static_cast<const std::int64_t*>(data);
  } else {
    throw Error(ErrorKind::kUsage, "indices must be int32 or int64", adjacency.name);
  }
  if (live != nullptr) {
    if (live->indices.dtype() != indices.dtype()) {
      throw Error(ErrorKind::kUsage, "indices of the base and of the changes must have one dtype", adjacency.name,
                  "compact the graph");
    }
    adjacency.overlay = &live->overlay;
    adjacency.num_base_rows = std::exchange(adjacency.num_rows, live->overlay.num_rows());
  }
  return adjacency;
}

}  // namespace graphbox::bind
