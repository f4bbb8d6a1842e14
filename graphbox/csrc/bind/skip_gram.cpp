// Training by skip-gram for Python.
#include "train/skip_gram.h"
#include "bind/released_gil.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "bind/arrays.h"
#include "bind/nouns.h"
#include "bind/walk.h"

namespace graphbox::bind {
namespace {

// The settings and what they point to.
struct SkipGramTrainer {
  const PlanArrays* plan;
  PairTuple pairs;
  SkipGram trainer;
};

void check(bool is_right, const char* expected, const char* where) {
  if (!is_right) {
    throw Error(ErrorKind::kUsage, std::string("expected ") + expected, where);
  }
}

std::pair<double, std::int64_t> train(SkipGramTrainer& self, const WalkerArrays& walkers,
                                      const InputArray<std::int64_t>& offsets, const DrawKey& key,
                                      std::uint64_t negative_seed, float lr, bool lock_free, int threads,
                                      const std::optional<InputArray<std::int64_t, 2>>& made) {
  WalkRequest walks = with_walkers(*self.plan, walkers, key, threads);
  if (made) {
    check(made->shape(0) == walks.start.size() && static_cast<std::int64_t>(made->shape(1)) == walks.length + 1,
          "one walk of the plan's length for each walker", "walks");
    walks.made = made->data();
  }
  const SkipGramRequest windows = skip_gram_request(self.pairs, walks.paths.size(), walks.length + 1, key, threads);
  const auto parts = view(offsets);
  check(!parts.empty() && parts.front() == 0 && parts.back() == static_cast<std::int64_t>(walks.start.size()) &&
            std::is_sorted(parts.begin(), parts.end()),
        "offsets that rise from 0 to the number of walkers", "offsets");
  check(std::isfinite(lr) && lr >= 0, "a learning rate that is finite and not negative", "lr");
  SkipGramBatches batches;
  batches.walks = &walks;
  batches.windows = &windows;
  batches.offsets = parts;
  std::tie(batches.seed, batches.epoch, batches.first_batch) = key;
  batches.negative_seed = negative_seed;
  batches.lr = lr;
  batches.is_lock_free = lock_free;
  batches.threads = threads;
  const ReleasedGil release;
  const SkipGramResult result = self.trainer.train(batches);
  return {result.loss, result.pairs};
}

}  // namespace

void add_skip_gram(nb::module_& module) {
  nb::class_<SkipGramTrainer>(module, "SkipGramTrainer",
                              "Trains rows of two tables, or of one, on the pairs of walks and shared negatives.")
      .def(
          "__init__",
          [](SkipGramTrainer* self, const PlanArrays& plan, PairTuple pairs, const AliasTable& negatives, Table& center,
             Table& context, std::int64_t num_keys, std::int64_t num_negatives, float negative_weight) {
            check(num_keys >= 1 && num_keys <= INT32_MAX && num_keys == negatives.size(),
                  "1 to 2^31 - 1 keys, each of which may be a negative", "num_keys");
            check(num_negatives >= 1 && num_negatives <= (1 << 20), "1 to 2^20 negatives", "num_negatives");
            check(std::isfinite(negative_weight) && negative_weight > 0, "a finite weight above 0", "negative_weight");
            check(center.config().dim == context.config().dim, "tables of one dim", "context");
            const SkipGramSettings settings = {&negatives, num_keys, num_negatives, negative_weight};
            new (self) SkipGramTrainer{&plan, std::move(pairs), SkipGram(settings, center, context)};
          },
          nb::arg("plan"), nb::arg("pairs").noconvert(), nb::arg("negatives"), nb::arg("center"), nb::arg("context"),
          nb::arg("num_keys"), nb::arg("num_negatives"), nb::arg("negative_weight"), nb::keep_alive<1, 2>(),
          nb::keep_alive<1, 4>(), nb::keep_alive<1, 5>(), nb::keep_alive<1, 6>())
      .def("train", &train, nb::arg("walkers"), nb::arg("offsets").noconvert(), nb::arg("key"),
           nb::arg("negative_seed"), nb::arg("lr"), nb::arg("lock_free"), nb::arg("threads"),
           nb::arg("walks").noconvert().none() = nb::none(),
           "Train batches, those of walkers offsets[i] to offsets[i + 1], numbered from that of `key` on: returns the\n"
           "sum of the losses of all pairs, and their number. `walks` are those of the walkers, where they were made\n"
           "before.");
}

}  // namespace graphbox::bind
