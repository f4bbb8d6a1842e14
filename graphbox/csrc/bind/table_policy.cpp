#include "bind/table_policy.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bind/arrays.h"
#include "bind/names.h"
#include "bind/released_gil.h"

namespace graphbox::bind {
namespace {

constexpr std::array<std::pair<const char*, Admission>, 4> kAdmissionNames = {{
    {"all", Admission::kAll},
    {"count", Admission::kCount},
    {"sketch", Admission::kSketch},
    {"probability", Admission::kProbability},
}};

constexpr std::array<std::pair<const char*, Eviction>, 3> kEvictionNames = {{
    {"none", Eviction::kNone},
    {"clock", Eviction::kClock},
    {"score", Eviction::kScore},
}};

nb::tuple counters(const Table& self, InputArray<std::int64_t> keys, int threads) {
  const auto count = static_cast<std::int64_t>(keys.shape(0));
  PooledArray<bool> has_row(count);
  PooledArray<float> shows(count);
  PooledArray<float> clicks(count);
  PooledArray<float> scores(count);
  PooledArray<std::uint32_t> unseen_passes(count);
  PooledArray<std::uint32_t> last_seen_second(count);
  {
    const ReleasedGil release;
    self.counters(keys.data(), count,
                  {has_row.data(), shows.data(), clicks.data(), scores.data(), unseen_passes.data(),
                   last_seen_second.data()},
                  threads);
  }
  return nb::make_tuple(to_numpy(std::move(has_row)), to_numpy(std::move(shows)), to_numpy(std::move(clicks)),
                        to_numpy(std::move(scores)), to_numpy(std::move(unseen_passes)),
                        to_numpy(std::move(last_seen_second)));
}

}  // namespace

void add_policy_classes(nb::module_& module) {
  nb::class_<PolicyConfig>(module, "PolicyConfig", "Admission and eviction policies of a table.")
      .def(
          "__init__",
          [](PolicyConfig* self, const std::string& admission, std::uint32_t admission_count,
             double admission_probability, std::uint64_t sketch_bytes, std::uint64_t halve_after,
             std::optional<std::uint32_t> expiry_passes, std::optional<std::uint32_t> expiry_seconds, bool has_score,
             float nonclick_weight, float click_weight, float decay, float drop_below, const std::string& eviction) {
            PolicyConfig config;
            config.admission = value_of(kAdmissionNames, admission, "all, count, sketch or probability", "admission");
            config.admission_count = admission_count;
            config.admission_probability = admission_probability;
            config.sketch_bytes = sketch_bytes;
            config.halve_after = halve_after;
            config.expiry_passes = expiry_passes.value_or(kNeverExpires);
            config.expiry_seconds = expiry_seconds.value_or(kNeverExpires);
            config.has_score = has_score;
            config.nonclick_weight = nonclick_weight;
            config.click_weight = click_weight;
            config.decay = decay;
            config.drop_below = drop_below;
            config.eviction = value_of(kEvictionNames, eviction, "none, clock or score", "eviction");
            new (self) PolicyConfig(config);
          },
          nb::kw_only(), nb::arg("admission") = "all", nb::arg("admission_count") = 1,
          nb::arg("admission_probability") = 1.0, nb::arg("sketch_bytes") = 0, nb::arg("halve_after") = 0,
          nb::arg("expiry_passes") = nb::none(), nb::arg("expiry_seconds") = nb::none(), nb::arg("has_score") = false,
          nb::arg("nonclick_weight") = 0.0F, nb::arg("click_weight") = 0.0F, nb::arg("decay") = 1.0F,
          nb::arg("drop_below") = 0.0F, nb::arg("eviction") = "none");
  nb::class_<PolicyEvents>(module, "PolicyEvents", "Counts of rows that the policies of a table admitted, refused and dropped.")
      .def_ro("admitted_keys", &PolicyEvents::admitted_keys)
      .def_ro("refused_pulls", &PolicyEvents::refused_pulls)
      .def_ro("dropped_gradients", &PolicyEvents::dropped_gradients)
      .def_ro("evicted_rows", &PolicyEvents::evicted_rows)
      .def_ro("dropped_rows", &PolicyEvents::dropped_rows);
  nb::class_<ShrinkCounts>(module, "ShrinkCounts", "Rows that shrinking a table dropped, by reason.")
      .def_ro("examined", &ShrinkCounts::examined)
      .def_ro("unseen_passes", &ShrinkCounts::unseen_passes)
      .def_ro("unseen_seconds", &ShrinkCounts::unseen_seconds)
      .def_ro("low_score", &ShrinkCounts::low_score)
      .def_ro("freed_bytes", &ShrinkCounts::freed_bytes);
}

void add_policy_methods(nb::class_<Table>& table) {
  table
      .def("set_time", &Table::set_time, nb::arg("seconds"), "Seconds since 1970, of whatever comes next.")
      .def("end_pass", &Table::end_pass, nb::call_guard<ReleasedGil>())
      .def_prop_ro("passes", &Table::pass, "Passes that have ended.", nb::call_guard<ReleasedGil>())
      .def("shrink", &Table::shrink, nb::arg("threads"), nb::call_guard<ReleasedGil>(),
           "Drop rows that are expired or of low score.")
      .def("policy_events", &Table::policy_events, nb::call_guard<ReleasedGil>())
      .def("counters", &counters, nb::arg("keys").noconvert(), nb::arg("threads"),
           "Whether keys have rows; shows, clicks, scores, passes unseen, second last seen of each.")
      .def(
          "take_state",
          [](Table& self, bool is_whole) -> nb::object {
            std::optional<std::vector<std::byte>> state;
            {
              const ReleasedGil release;
              state = self.take_state(is_whole);
            }
            return state ? nb::object(nb::bytes(state->data(), state->size())) : nb::none();
          },
          nb::arg("is_whole"),
          "State of the policies besides the counters of rows: all of it, or the changes since it was last taken; None: none.",
          nb::sig("def take_state(self, is_whole: bool) -> bytes | None"))
      .def("confirm_state", &Table::confirm_state, nb::call_guard<ReleasedGil>(), "Confirm that the state last taken is durable.")
      .def("restore_state", &Table::restore_state, nb::call_guard<ReleasedGil>(), "Mark the state last taken as lost: it is taken again.")
      .def(
          "add_policy_state",
          [](Table& self, const nb::bytes& state, std::pair<std::uint64_t, std::uint64_t> shard) {
            self.add_policy_state(static_cast<const std::byte*>(state.data()), state.size(),
                                  {shard.first, shard.second});
          },
          nb::arg("state"), nb::arg("shard"), "Add what the policies of a table knew whose rows are in this one.");
}

}  // namespace graphbox::bind
