#include "actors/decoding/head_candidates.hpp"

#include <algorithm>

#include "model/sampling/sampler_scratch.hpp"

namespace paceline {

HeadCandidates::HeadCandidates(Backend& backend)
    : backend_{backend}, scratch_{std::make_unique<SamplerScratch>()} {
    row_.resize(static_cast<std::size_t>(backend.config().vocab_size));
    logits_.resize(kRowsOfCall * row_.size());
}

HeadCandidates::~HeadCandidates() = default;

std::vector<std::vector<Candidate>> HeadCandidates::find(HeadId id, std::span<const HeadRow> rows) {
    std::vector<std::vector<Candidate>> best(rows.size());
    for (std::size_t begin = 0; begin < rows.size(); begin += kRowsOfCall) {
        const std::size_t count = std::min(kRowsOfCall, rows.size() - begin);
        find(id, rows.subspan(begin, count), std::span{best}.subspan(begin, count));
    }
    return best;
}

/// One call of the head.
void HeadCandidates::find(HeadId id,
                          std::span<const HeadRow> rows,
                          std::span<std::vector<Candidate>> best) {
    std::vector<RowSource> sources;
    std::vector<DrawJob> jobs;
    for (const HeadRow& row : rows) {
        sources.push_back(row.hidden);
        jobs.push_back(row.job);
    }
    const ConstHiddenRows hidden = backend_.in_order(sources, hidden_);
    DeviceSampler* device = backend_.device_sampler();
    const auto draws = [&](const DrawJob& job) {
        return job.count <= device->candidates_max() && device->draws(*job.params);
    };
    if (device != nullptr && std::all_of(jobs.begin(), jobs.end(), draws))
        return device->draw_candidates(id, hidden, jobs, best);
    const std::span<const TokenId> list = backend_.short_list(id);
    const std::size_t width = list.empty() ? row_.size() : list.size();
    const auto logits = std::span{logits_}.first(rows.size() * width);
    if (list.empty()) {
        backend_.head(id, hidden, static_cast<int>(rows.size()), logits);
    } else {
        backend_.head_listed(id, hidden, static_cast<int>(rows.size()), logits);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto& [source, seen, job] = rows[i];
        const auto own = logits.subspan(i * width, width);
        best[i] = list.empty()
                      ? candidates(own, job.position, seen, *job.params, job.count, *scratch_)
                      : listed_candidates(own, list, row_, job.position, seen, *job.params,
                                          job.count, *scratch_);
    }
}

}  // namespace paceline
