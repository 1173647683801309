// What GET /v1/models, /v1/models/ID, /props, /slots, /tokenizer_info and /version say. Never the
// path of a file.
//
// Pure.
#pragma once

#include <cstddef>
#include <string>

#include "launch/api/reply.hpp"
#include "launch/api/served_model.hpp"

namespace paceline::serve {

[[nodiscard]] Reply models_reply(const ServedModel& model);
/// Errors: 404 model_not_found.
[[nodiscard]] Reply model_reply(const std::string& id, const ServedModel& model);
[[nodiscard]] Reply props_reply(const ServedModel& model);
/// One entry for each answer that may run at the same time. With `fail_if_busy` 503 if all do.
[[nodiscard]] Reply slots_reply(const ServedModel& model, std::size_t running, bool fail_if_busy);
/// The tokenizer's own settings, as vLLM has them.
[[nodiscard]] Reply tokenizer_info_reply(const ServedModel& model);
[[nodiscard]] Reply version_reply();

/// The name that clients see: `alias`, else the name of the file or folder without its suffix.
[[nodiscard]] std::string model_name(const std::string& alias, const std::string& path);
/// system_fingerprint: the program and the class of machines that computes equal bytes.
[[nodiscard]] std::string system_fingerprint();

}  // namespace paceline::serve
