#include "actors/draft/draft_text.hpp"

#include "ipc/base/limits.hpp"

namespace paceline {
namespace {

constexpr std::size_t kTreeNodesMax = 2 * kProposalNodesMax;

}  // namespace

DraftText::DraftText(const Request& request)
    : tokens{request.text},
      tree{kTreeNodesMax},
      sampling{request.sampling},
      context{request.context},
      cache_salt{request.cache_salt} {
    tree.plant(tokens.back(), static_cast<Position>(tokens.size()) - 1);
}

DraftTreeUpdate DraftText::follow(std::span<const TokenId> more) {
    Position root = tree.root().position;
    DraftTreeUpdate followed = tree.follow(more);
    tokens.insert(tokens.end(), more.begin(), more.end());
    if (cache) {
        cache->waits = false;
        for (const KvSlot slot : followed.kept) {
            if (cache->read_again) {
                cache->given_up.push_back({.position = root++, .slot = slot});
            } else {
                cache->slots.commit(slot);
            }
        }
        cache->became_text.insert(cache->became_text.end(), followed.committed.begin(),
                                  followed.committed.end());
    }
    return followed;
}

}  // namespace paceline
