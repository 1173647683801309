#include "actors/segment/verify_job.hpp"

#include <algorithm>

namespace paceline {

std::uint32_t VerifyJob::heads() const {
    std::uint32_t heads = 0;
    for (const VerifyPart& part : parts) {
        heads +=
            draws.empty() ? depth_of(part.rows) + 1 : static_cast<std::uint32_t>(part.rows.size());
    }
    if (!draws.empty()) return heads;
    heads = std::min(heads, std::max(head_rows, static_cast<std::uint32_t>(parts.size())));
    for (const VerifyPart& part : parts) {
        heads += static_cast<std::uint32_t>(
            std::count_if(part.rows.begin(), part.rows.end(),
                          [](const msg::BatchRow& row) { return row.observe != 0; }));
    }
    for (const ScoredRows& prompt : prompts) heads += static_cast<std::uint32_t>(prompt.count);
    return heads;
}

RunOutcome VerifyJob::run_layers(LayerJob& layers, bool keep_hidden) {
    if (draws.empty()) return layers.run_layers();
    return layers.backend.device_sampler()->run_and_draw(
        layers.rows, layers.hidden, {.jobs = draws, .hidden = keep_hidden}, drawn, &layers.cancel);
}

void VerifyJob::verify() {
    if (!parts.empty()) verifier.verify(parts);
    for (ScoredRows& prompt : prompts) verifier.score(prompt);
}

}  // namespace paceline
