// How the next token is chosen, in numbers that are the same on every machine: what the kernels of cuda/sample.h compute on a GPU and src/runtime/sampler.cc on
// the CPU. Probabilities are whole numbers, so that no sum depends on its order; the rest are single operations on floats, which IEEE 754 rounds in one way.
// No header is needed; read by NVRTC, by what builds packages and by the runtime.
#ifndef COIL_DEVICE_CUDA_SAMPLE_RULES_H_
#define COIL_DEVICE_CUDA_SAMPLE_RULES_H_

#ifdef __CUDA_ARCH__
#define CD_RULE static __device__ __forceinline__
#else
#define CD_RULE inline
#endif

namespace cd {

using SampleNumber = unsigned long long;

// The share of the most likely token. Sums of the shares of so many tokens fit into a number.
constexpr SampleNumber kSampleOne = SampleNumber{1} << 40;
constexpr int kMostSampleTokens = 1 << 23;

// exp((logit - largest) / temperature) of that: 2^-p, with p in fixed point, by the series of 2^x. Below 2^-40: 0. largest: the largest logit that there is.
CD_RULE SampleNumber sample_share(float logit, float largest, float temperature) {
  if (logit == largest) return kSampleOne;
  const float gap = (largest - logit) / temperature;
  if (!(gap < 32.0f)) return 0;
  constexpr unsigned kLog2OfE = 3098164009u;                                           // times 2^31
  const SampleNumber power = (SampleNumber)(unsigned)(gap * 134217728.0f) * kLog2OfE;  // times 2^58
  const unsigned part = (unsigned)(power >> 26);
  const int whole = (int)(power >> 58);
  if (part == 0) return kSampleOne >> whole;
  // ln(2)^k / k!, times 2^31
  constexpr unsigned kSeries[] = {2147483648u, 1488522236u, 515882496u, 119194166u, 20654775u, 2863360u, 330788u, 32755u, 2838u, 219u};
  unsigned sum = kSeries[9];
  for (int k = 8; k >= 0; --k) sum = kSeries[k] + (unsigned)((SampleNumber)sum * (0u - part) >> 32);
  return (SampleNumber)sum << 9 >> (whole + 1);
}

// A number in whose order the float with these bits is among floats that are not NaN; 0.0 and -0.0 are equal.
CD_RULE unsigned sample_order(unsigned bits) { return bits == 0x80000000u ? 0x80000000u : bits >> 31 ? ~bits : bits | 0x80000000u; }
CD_RULE unsigned sample_bits(unsigned order) { return order >> 31 ? order & 0x7fffffffu : ~order; }
constexpr unsigned kSampleNever = 0x007fffffu;  // of minus infinity: a token that cannot come

// The upper 64 bits of a product.
CD_RULE SampleNumber sample_product(SampleNumber a, SampleNumber b) {
  const SampleNumber low = (unsigned)a, high = a >> 32, below = (unsigned)b, above = b >> 32;
  const SampleNumber middle = high * below + (low * below >> 32), other = low * above + (unsigned)middle;
  return high * above + (middle >> 32) + (other >> 32);
}

// Shares that the most likely tokens need together, for top-p of `total`. top_p: times 2^64.
CD_RULE SampleNumber sample_target(SampleNumber total, SampleNumber top_p) {
  const SampleNumber target = sample_product(total, top_p);
  return target ? target : 1;
}

// 64 random bits for the token at a place: Philox4x32-10 of the seed and the place.
struct SampleWords {
  unsigned word[4];
};
CD_RULE SampleWords sample_philox(SampleNumber key, SampleNumber counter) {
  SampleWords c = {{(unsigned)counter, (unsigned)(counter >> 32), 0, 0}};
  unsigned k0 = (unsigned)key, k1 = (unsigned)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const SampleNumber a = (SampleNumber)0xD2511F53u * c.word[0], b = (SampleNumber)0xCD9E8D57u * c.word[2];
    c = {{(unsigned)(b >> 32) ^ c.word[1] ^ k0, (unsigned)b, (unsigned)(a >> 32) ^ c.word[3] ^ k1, (unsigned)a}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}
// Of what is left to choose from, whose shares are `kept` together: the token whose share holds this one, in the order of the vocabulary.
CD_RULE SampleNumber sample_place(SampleNumber seed, SampleNumber place, SampleNumber kept) {
  const SampleWords random = sample_philox(seed, place);
  return sample_product((SampleNumber)random.word[0] << 32 | random.word[1], kept);
}

// How likely a token was by logits themselves, and which ones were the most likely: shares at a temperature of 1, which are whole numbers too.
enum : int { kSampleBest = 32 };  // of the most likely ones, at most
struct SampleChances {
  SampleNumber total;              // the shares of all tokens
  SampleNumber best[kSampleBest];  // sample_rank of the most likely tokens, the first one first; 0: there are no more
  unsigned chosen, largest;        // bits of the logit of the token that was chosen, and of the largest one
};
// Orders tokens by their logit, equal ones as in the vocabulary; never 0.
CD_RULE SampleNumber sample_rank(unsigned bits, long long token) { return (SampleNumber)sample_order(bits) << 32 | (0xffffffffu - (unsigned)token); }
CD_RULE long long sample_ranked_token(SampleNumber rank) { return 0xffffffffu - (unsigned)rank; }

// ---- What the kernels work with ----

// Blocks of a row and their threads, tokens that a block has at least, bins of a histogram, and rows of a launch.
enum : int { kSampleThreads = 256, kSampleBlocks = 256, kSampleChunk = 1024, kSampleBins = 2048, kSampleRows = 16 };

CD_RULE long long sample_blocks(long long vocabulary) {
  const long long blocks = (vocabulary + kSampleChunk - 1) / kSampleChunk;
  constexpr long long kMost = kSampleBlocks;
  return blocks < kMost ? blocks : kMost;
}
// Tokens of each block.
CD_RULE long long sample_chunk(long long vocabulary) {
  const long long blocks = sample_blocks(vocabulary), all = blocks * kSampleThreads;
  return (vocabulary + all - 1) / all * kSampleThreads;
}

// Of sample_select: what is counted, and the number of the pass.
enum : int { kSamplePasses = 4 };
struct SamplePass {
  int by_share, number;
};

// Between the kernels of a choice; zero before the first one. The logits of all tokens, changed by the rules, follow it.
struct SampleScratch {
  SampleNumber most_likely;  // of the most likely token: its order, and below it the complement of its number
  SampleNumber total, ties;  // left to choose from: shares of tokens above `threshold` and of the first `ties` of those at it
  SampleNumber left, above;  // while the threshold is looked for: what is missing behind the bins before, and their shares
  unsigned threshold, bin, prefix, selecting;
  unsigned halt;  // the row has come to its end
  unsigned ticket;
  unsigned chosen, largest;  // the token that was chosen last; bits of the largest logit
  SampleNumber shares;       // of all tokens
  SampleNumber sums[kSampleBins], part_sums[kSampleBlocks], part_ties[kSampleBlocks];
  unsigned counts[kSampleBins];
  SampleNumber tops[kSampleBlocks][kSampleBest], best[kSampleBest];  // ranks: each block's, and those of all
};
CD_RULE long long sample_scratch_bytes(long long vocabulary) {
  const long long bytes = (long long)sizeof(SampleScratch) + 4 * vocabulary;
  return (bytes + 255) / 256 * 256;
}

// What a row comes to instead of a token.
enum : int {
  kSampleHalted = -1,   // the row had ended before
  kSampleFault = -2,    // the program has found a fault in its data
  kSampleNaN = -3,      // a logit is not a number
  kSampleNothing = -4,  // no token may come
};

}  // namespace cd

// One choice. Null pointers: the rule is not there.
struct CudaSample {
  const void* logits;              // [vocabulary]
  void* scratch;                   // SampleScratch and what follows it
  const float* bias;               // [vocabulary], added
  unsigned* seen;                  // a bit for each token that was there; the new one is added
  const unsigned char* allowed;    // [vocabulary], 0: must not come
  const long long* stop;           // [num_stop]: tokens that end the row
  const int* flag;                 // what the program's kernels report faults through
  long long* result;               // the token, or one of the numbers above; memory of the host that the device writes to
  void *next_token, *next_place;   // where the program reads them in its next call
  unsigned long long seed, place;  // place: of the new token
  unsigned long long top_p;        // times 2^64; 0: all
  unsigned long long top_k;        // 0: all
  unsigned long long min_share;
  float penalty, temperature;
  int num_stop;
  int token_bytes, place_bytes;
  int first;                   // the row goes on, however it ended before
  int num_best;                // of SampleChances::best, at most kSampleBest
  cd::SampleChances* chances;  // memory of the host that the device writes to
};

struct CudaSampleRows {
  CudaSample row[cd::kSampleRows];
};

#endif  // COIL_DEVICE_CUDA_SAMPLE_RULES_H_
