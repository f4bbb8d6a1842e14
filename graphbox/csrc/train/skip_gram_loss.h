// The loss of skip-gram with negative samples (Mikolov et al., NIPS 2013) and its gradients, as products of matrices.
//
// Pairs of a walk are a band of the product of its centres and contexts; all centres of a batch share its negatives
// (Ji et al., "Parallelizing word2vec in shared and distributed memory", IEEE TPDS 30(9), 2019).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace graphbox {

// Rows are padded with zeros to a multiple of kLaneCount numbers.
struct WalkRows {
  std::size_t count;              // rows of each of the following
  std::size_t stride;             // numbers of a row
  const float* centers;           // [count, stride]
  const float* contexts;          // [count, stride]
  const std::int32_t* keys;       // [count]: no pair joins equal ones
  const std::int32_t* first;      // [count]: contexts of each centre, first place
  const std::int32_t* last;       // and one past the last
  float scale;                    // of the gradients
};

struct NegativeRows {
  std::size_t count;              // of centres
  std::size_t stride;
  const float* centers;           // [count, stride]
  const float* weights;           // [count]: how much each negative of a centre counts in the loss
  std::size_t num_negatives;
  const float* negatives;         // [num_negatives, stride]
  const float* transposed;        // [stride, whole_lanes(num_negatives)]
  float scale;
};

// Room for what is computed in between; grows, and may be used again.
struct LossWorkspace {
  std::vector<float> transposed;
  std::vector<float> logits;
};

// Returns the sum of log(1 + e^-logit) over the pairs, and writes its gradients: those of all rows, zeros included.
double walk_loss(const WalkRows& rows, float* center_gradients, float* context_gradients, LossWorkspace& workspace);

// Returns the sum of weight * log(1 + e^logit) over centres and negatives, and writes its gradients.
double negative_loss(const NegativeRows& rows, float* center_gradients, float* negative_gradients,
                     LossWorkspace& workspace);

// to[column, row] = from[row, column] of rows x columns numbers. `to` has rows of `to_stride` numbers, the rest of which
// is 0.
void transpose(const float* from, std::size_t rows, std::size_t columns, float* to, std::size_t to_stride);

}  // namespace graphbox
