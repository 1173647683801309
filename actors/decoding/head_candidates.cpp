#include "actors/decoding/head_candidates.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"
#include "model/sampling/sampler_scratch.hpp"

namespace paceline {

HeadCandidates::HeadCandidates(Backend& backend)
    : backend_{backend}, scratch_{std::make_unique<SamplerScratch>()} {
    row_.resize(static_cast<std::size_t>(backend.config().vocab_size));
    logits_.resize(kRows * row_.size());
}

HeadCandidates::~HeadCandidates() = default;

void HeadCandidates::find(HeadId id,
                          ConstHiddenRows hidden,
                          std::span<const SeenTokens> seen,
                          std::span<const DrawJob> jobs,
                          std::span<std::vector<Candidate>> best) {
    PACE_CHECK(jobs.size() <= kRows, "more hidden states than one call of a head takes");
    const bool on_device = std::all_of(jobs.begin(), jobs.end(), [&](const DrawJob& job) {
        return job.count <= backend_.candidates_max() && backend_.draws(*job.params);
    });
    if (on_device) return backend_.draw_candidates(id, hidden, jobs, best);
    const std::span<const TokenId> list = backend_.short_list(id);
    const std::size_t width = list.empty() ? row_.size() : list.size();
    const auto logits = std::span{logits_}.first(jobs.size() * width);
    if (list.empty()) {
        backend_.head(id, hidden, static_cast<int>(jobs.size()), logits);
    } else {
        backend_.head_listed(id, hidden, static_cast<int>(jobs.size()), logits);
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const DrawJob& job = jobs[i];
        const auto own = logits.subspan(i * width, width);
        best[i] = list.empty()
                      ? candidates(own, job.position, seen[i], *job.params, job.count, *scratch_)
                      : listed_candidates(own, list, row_, job.position, seen[i], *job.params,
                                          job.count, *scratch_);
    }
}

}  // namespace paceline
