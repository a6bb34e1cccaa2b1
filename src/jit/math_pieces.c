/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_pieces.c: functions of |x| as a polynomial in each of 32 pieces, whose coefficients lie in registers and are
 * looked up by AVX-512's permutation of two of them: no division, no exp, and one path for all arguments. The
 * permutation takes the low five bits of its index. The one of AVX within 128 bits takes the low two: 4 pieces.
 *
 * Where the error is to be small beside a result that goes to 0 with |x|, pieces are numbered by bits 21 to 25 of the
 * float: four an octave, eight octaves (which wrap around by themselves) from 2^-4 on; the first one goes down to 0.
 * Degree 5. Else all pieces are 1/4 wide, and have degree 4; 4 of them are 93/64 wide, and have degree 8. (8 by AVX2's
 * permutation of 256 bits have degree 7, but on Zen that is two operations of the units that multiply.) */
#include "jit/math_impl.h"
#include <string.h>

enum { PIECES = 32, HALF = PIECES / 2, COLUMNS = 7, SHIFT = 21, QUARTER_COLUMNS = 5, FOURS = 4, FOURS_COLUMNS = 9 };

/* clang-format off: an octave a line, of quarters an integer a line; scripts/minimax.py makes them. Errors are
 * relative, those of quarters and fours absolute: of a times the tail. */
/* tanh_pieces: error 2^-25.0 */
static const float tanh_pieces[COLUMNS][PIECES] = {
    {0x1.1ffe98p+1f, 0x1.5fff4ep+1f, 0x1.a000c4p+1f, 0x1.e0002ap+1f,
     0x1.1fff3ep+2f, 0x1.60018ep+2f, 0x1.9ffe7p+2f, 0x1.e0018ep+2f,
     0x1.1ffe7p+3f, 0x1.4p+3f, 0x1.8p+3f, 0x1.cp+3f,
     0, 0x1.5ffee6p-4f, 0x1.a0003p-4f, 0x1.e000c2p-4f,
     0x1.2000dep-3f, 0x1.5ffecep-3f, 0x1.9fff9ap-3f, 0x1.dfff3p-3f,
     0x1.1fffe4p-2f, 0x1.600068p-2f, 0x1.9ffe82p-2f, 0x1.e000eap-2f,
     0x1.2000dcp-1f, 0x1.600038p-1f, 0x1.a00154p-1f, 0x1.dfffbp-1f,
     0x1.1fffecp+0f, 0x1.5fff2p+0f, 0x1.a000fp+0f, 0x1.dffe8cp+0f},
    {0x1.f4bf98p-1f, 0x1.fbd4fep-1f, 0x1.fe767ep-1f, 0x1.ff6f18p-1f,
     0x1.ffdfa6p-1f, 0x1.fffbap-1f, 0x1.ffff68p-1f, 0x1.ffffecp-1f,
     0x1.fffffep-1f, 0x1p+0f, 0x1p+0f, 0x1p+0f,
     0, 0x1.5f21bap-4f, 0x1.9e9386p-4f, 0x1.ddd152p-4f,
     0x1.1e1eaap-3f, 0x1.5c91dep-3f, 0x1.9a5ebap-3f, 0x1.d76598p-3f,
     0x1.18a38p-2f, 0x1.52c322p-2f, 0x1.8a869cp-2f, 0x1.bfaf28p-2f,
     0x1.050912p-1f, 0x1.315804p-1f, 0x1.5789bap-1f, 0x1.77d814p-1f,
     0x1.9e5ca8p-1f, 0x1.c2784p-1f, 0x1.d9c74p-1f, 0x1.e8785cp-1f},
    {0x1.641832p-5f, 0x1.09aa84p-6f, 0x1.88eabap-8f, 0x1.21a6f2p-9f,
     0x1.02c55p-11f, 0x1.1825bap-14f, 0x1.2f6f42p-17f, 0x1.486656p-20f,
     0x1.05dbe4p-24f, 0, 0, 0,
     0x1p+0f, 0x1.fc3cc4p-1f, 0x1.fac13ep-1f, 0x1.f90854p-1f,
     0x1.f601bcp-1f, 0x1.f12b18p-1f, 0x1.eb7164p-1f, 0x1.e4dfc8p-1f,
     0x1.d98b3ep-1f, 0x1.c7f704p-1f, 0x1.b3ffacp-1f, 0x1.9e235cp-1f,
     0x1.7aea4p-1f, 0x1.49e694p-1f, 0x1.197ed2p-1f, 0x1.d8354p-2f,
     0x1.61503p-2f, 0x1.ceaa0ep-3f, 0x1.265c34p-3f, 0x1.6fd3a2p-4f},
    {-0x1.5c418cp-5f, -0x1.077bd6p-6f, -0x1.87b3c6p-8f, -0x1.214deep-9f,
     -0x1.024b3cp-11f, -0x1.17affcp-14f, -0x1.2ef1eep-17f, -0x1.47deeep-20f,
     -0x1.fcfe98p-25f, 0, 0, 0,
     0x1.4502dep-25f, -0x1.5c8d24p-4f, -0x1.9a5444p-4f, -0x1.d750bcp-4f,
     -0x1.188908p-3f, -0x1.5278eep-3f, -0x1.89e4b8p-3f, -0x1.be6c12p-3f,
     -0x1.038f5cp-2f, -0x1.2dafd6p-2f, -0x1.4ff65ep-2f, -0x1.6a1d8ap-2f,
     -0x1.825e2cp-2f, -0x1.897d1cp-2f, -0x1.79c062p-2f, -0x1.5aa252p-2f,
     -0x1.1df072p-2f, -0x1.9710eap-3f, -0x1.106308p-3f, -0x1.5eec46p-4f},
    {0x1.bbd6bcp-6f, 0x1.599932p-7f, 0x1.03946cp-8f, 0x1.80e85p-10f,
     0x1.588a3ap-12f, 0x1.753b4cp-15f, 0x1.944c98p-18f, 0x1.b58f28p-21f,
     0x1.58fa24p-25f, 0, 0, 0,
     -0x1.55564ep-2f, -0x1.4b5aep-2f, -0x1.477426p-2f, -0x1.42f16ep-2f,
     -0x1.3b1328p-2f, -0x1.2ea43cp-2f, -0x1.202a4cp-2f, -0x1.0fdf3ap-2f,
     -0x1.e91f08p-3f, -0x1.9857f6p-3f, -0x1.4273fap-3f, -0x1.d71cf4p-4f,
     -0x1.bd02c8p-5f, 0x1.d77266p-7f, 0x1.073044p-4f, 0x1.843436p-4f,
     0x1.c68d4cp-4f, 0x1.97d8dap-4f, 0x1.33dd64p-4f, 0x1.a85fccp-5f},
    {-0x1.96092ep-7f, -0x1.519904p-8f, -0x1.0371ep-9f, -0x1.83e6fp-11f,
     -0x1.69e348p-13f, -0x1.8879d6p-16f, -0x1.a9332ap-19f, -0x1.cc334ap-22f,
     -0x1.a8a8eep-26f, 0, 0, 0,
     0x1.f78c9ap-14f, 0x1.cb96b4p-5f, 0x1.0d55e2p-4f, 0x1.33c7eap-4f,
     0x1.6b0612p-4f, 0x1.af9a3cp-4f, 0x1.ed779ap-4f, 0x1.11e99ep-3f,
     0x1.32dfb6p-3f, 0x1.4fff98p-3f, 0x1.5c02bep-3f, 0x1.583978p-3f,
     0x1.39da14p-3f, 0x1.e93a6ep-4f, 0x1.474008p-4f, 0x1.633c16p-5f,
     0x1.e51284p-9f, -0x1.599cep-6f, -0x1.9b95b2p-6f, -0x1.5598d4p-6f},
    {0x1.04bcap-8f, 0x1.f586fap-10f, 0x1.93732ep-11f, 0x1.326e7ep-12f,
     0x1.1cd2c4p-14f, 0x1.358c28p-17f, 0x1.4f5058p-20f, 0x1.6b1048p-23f,
     0x1.418c88p-27f, 0, 0, 0,
     0x1.0e564ep-3f, 0x1.00386cp-3f, 0x1.f36a56p-4f, 0x1.e473eap-4f,
     0x1.ca8fa4p-4f, 0x1.a261b2p-4f, 0x1.74a65ep-4f, 0x1.428bfap-4f,
     0x1.e3cc8ep-5f, 0x1.05c1eep-5f, 0x1.8439f6p-8f, -0x1.193bb2p-6f,
     -0x1.6469cep-5f, -0x1.f8946ap-5f, -0x1.00c184p-4f, -0x1.b2b782p-5f,
     -0x1.0660b2p-5f, -0x1.37255ep-7f, 0x1.70aabap-10f, 0x1.2dd5ecp-8f},
};
/* erf_pieces: error 2^-25.4 */
static const float erf_pieces[COLUMNS][PIECES] = {
    {0x1.1fff8p+1f, 0x1.5fff9p+1f, 0x1.9ffe7p+1f, 0x1.dffffep+1f,
     0x1p+2f, 0x1.4p+2f, 0x1.8p+2f, 0x1.cp+2f,
     0x1p+3f, 0x1.4p+3f, 0x1.8p+3f, 0x1.cp+3f,
     0, 0x1.5fffc8p-4f, 0x1.9fffp-4f, 0x1.dffea2p-4f,
     0x1.1ffee4p-3f, 0x1.60006ep-3f, 0x1.a0007ep-3f, 0x1.dffe7p-3f,
     0x1.200138p-2f, 0x1.5ffecep-2f, 0x1.a0018cp-2f, 0x1.dffe88p-2f,
     0x1.200022p-1f, 0x1.6000e8p-1f, 0x1.9ffe74p-1f, 0x1.e00092p-1f,
     0x1.1fff78p+0f, 0x1.600002p+0f, 0x1.9ffe7ap+0f, 0x1.dfffd4p+0f},
    {0x1.be8186p-2f, 0x1.3fe67ep-2f, 0x1.8003fep-3f, 0x1.ffffe2p-5f,
     -0x1.08ddd2p-26f, -0x1p-2f, -0x1p-1f, -0x1.8p-1f,
     -0x1p+0f, -0x1.8p+0f, -0x1p+1f, -0x1.4p+1f,
     0, 0x1.34368ep-4f, 0x1.6bcb1ap-4f, 0x1.a325f2p-4f,
     0x1.f5ae12p-4f, 0x1.31506ep-3f, 0x1.6707d6p-3f, 0x1.9bdc66p-3f,
     0x1.e9374p-3f, 0x1.2614aep-2f, 0x1.54d104p-2f, 0x1.806eb4p-2f,
     0x1.bb7178p-2f, 0x1.fd255ap-2f, 0x1.17b93cp-1f, 0x1.29553ap-1f,
     0x1.36dacp-1f, 0x1.35768cp-1f, 0x1.24f718p-1f, 0x1.0be632p-1f},
    {-0x1.f15f1ep-3f, -0x1.fecc98p-3f, -0x1.fff0bp-3f, -0x1.ffff8ap-3f,
     0, 0, 0, 0,
     0, 0, 0, 0,
     0x1.c1baeap-1f, 0x1.bd7aacp-1f, 0x1.bbcd38p-1f, 0x1.b9d9c2p-1f,
     0x1.b66af8p-1f, 0x1.b0e9b2p-1f, 0x1.aa60c2p-1f, 0x1.a2d9e4p-1f,
     0x1.95ca44p-1f, 0x1.815808p-1f, 0x1.69d50ep-1f, 0x1.4fc4bep-1f,
     0x1.25072ep-1f, 0x1.d03e24p-2f, 0x1.551e8cp-2f, 0x1.bf924cp-3f,
     0x1.17ac86p-4f, -0x1.4634e4p-4f, -0x1.5b2e2cp-3f, -0x1.bb4c26p-3f},
    {-0x1.07359ep-6f, -0x1.a5b7p-10f, -0x1.8b82a8p-14f, -0x1.b5a7bep-19f,
     0, 0, 0, 0,
     0, 0, 0, 0,
     0x1.447eb4p-26f, -0x1.8a4418p-4f, -0x1.d0959ep-4f, -0x1.0b1d5p-3f,
     -0x1.3e9af2p-3f, -0x1.81a122p-3f, -0x1.c26f26p-3f, -0x1.00554ep-2f,
     -0x1.2c430ap-2f, -0x1.60eb5p-2f, -0x1.8dfe96p-2f, -0x1.b2c71cp-2f,
     -0x1.d9a832p-2f, -0x1.ef2becp-2f, -0x1.e526fap-2f, -0x1.c1cd1cp-2f,
     -0x1.6ea866p-2f, -0x1.dfbd3ep-3f, -0x1.0bd506p-3f, -0x1.01a2fp-4f},
    {0x1.63fad2p-6f, 0x1.69a63ep-9f, 0x1.99f934p-13f, 0x1.0a2cecp-17f,
     0, 0, 0, 0,
     0, 0, 0, 0,
     -0x1.8127c4p-2f, -0x1.78ac24p-2f, -0x1.75564cp-2f, -0x1.717764p-2f,
     -0x1.6aad72p-2f, -0x1.5fd934p-2f, -0x1.531648p-2f, -0x1.44841p-2f,
     -0x1.2b8f5ep-2f, -0x1.055a5ep-2f, -0x1.b586b4p-3f, -0x1.5aa00ap-3f,
     -0x1.9c4122p-4f, -0x1.a4001ap-7f, 0x1.fdfa2p-5f, 0x1.e4cb18p-4f,
     0x1.4cb2a2p-3f, 0x1.4374fp-3f, 0x1.d668d2p-4f, 0x1.143e48p-4f},
    {-0x1.3d0754p-6f, -0x1.bf82ep-9f, -0x1.470b1ep-12f, -0x1.07c7c2p-16f,
     0, 0, 0, 0,
     0, 0, 0, 0,
     0x1.f69724p-15f, 0x1.88501ap-5f, 0x1.cd6032p-5f, 0x1.08a93ap-4f,
     0x1.3a5dfep-4f, 0x1.79fd52p-4f, 0x1.b5fe02p-4f, 0x1.edd59ep-4f,
     0x1.1c4bcp-3f, 0x1.44f8fcp-3f, 0x1.620ceep-3f, 0x1.72f038p-3f,
     0x1.752f96p-3f, 0x1.52b916p-3f, 0x1.0f6adap-3f, 0x1.746d2ap-4f,
     0x1.d047d8p-6f, -0x1.eb3dbap-6f, -0x1.948772p-5f, -0x1.5966b2p-5f},
    {0x1.5b17ap-7f, 0x1.7115e2p-9f, 0x1.59edcep-12f, 0x1.4e7e62p-16f,
     0, 0, 0, 0,
     0, 0, 0, 0,
     0x1.cb75f6p-4f, 0x1.bd4114p-4f, 0x1.b69f72p-4f, 0x1.aef19p-4f,
     0x1.a17de6p-4f, 0x1.8c3248p-4f, 0x1.7348dcp-4f, 0x1.57169ep-4f,
     0x1.2765dep-4f, 0x1.c0531p-5f, 0x1.26c762p-5f, 0x1.134f58p-6f,
     -0x1.6221d6p-7f, -0x1.54be02p-5f, -0x1.f93834p-5f, -0x1.1cb522p-4f,
     -0x1.f48534p-5f, -0x1.f5fb8ep-6f, -0x1.2ac038p-9f, 0x1.73d36ap-7f},
};
/* gelu_quarters: error 2^-25.6 */
static const float gelu_quarters[QUARTER_COLUMNS][PIECES] = {
    {0x1p-1f, 0x1.9aecbap-2f, 0x1.3bf144p-2f, 0x1.d022p-3f,
     0x1.44ed0cp-3f, 0x1.b0bdd2p-4f, 0x1.11a46ep-4f, 0x1.482a24p-5f,
     0x1.74bcf8p-6f, 0x1.90925p-7f, 0x1.96f4e6p-8f, 0x1.869044p-9f,
     0x1.61de2p-10f, 0x1.2e86fep-11f, 0x1.e7dbcap-13f, 0x1.72d956p-14f,
     0x1.09ad7ap-15f, 0x1.66a5bcp-17f, 0x1.c80728p-19f, 0x1.11056ep-20f,
     0x1.33ca3p-22f, 0x1.46a16cp-24f, 0x1.463cfap-26f, 0x1.32a35ep-28f,
     0x1.0f30fp-30f, 0x1.c34c28p-33f, 0x1.61404cp-35f, 0x1.04178ap-37f,
     0x1.683c36p-40f, 0x1.d53e3ep-43f, 0x1.1f68f4p-45f, 0},
    {-0x1.988444p-2f, -0x1.8bf28ep-2f, -0x1.6883b8p-2f, -0x1.345d6p-2f,
     -0x1.ef8e82p-3f, -0x1.7610f6p-3f, -0x1.0940c2p-3f, -0x1.6164acp-4f,
     -0x1.ba4bap-5f, -0x1.0402f2p-5f, -0x1.1f2edp-6f, -0x1.29f99ep-7f,
     -0x1.2270aap-8f, -0x1.09f158p-9f, -0x1.c9839p-11f, -0x1.71b22ap-12f,
     -0x1.18a216p-13f, -0x1.903c8cp-15f, -0x1.0c1cdcp-16f, -0x1.517176p-18f,
     -0x1.8ef75p-20f, -0x1.bb1f16p-22f, -0x1.ce56c6p-24f, -0x1.c52828p-26f,
     -0x1.a13d8cp-28f, -0x1.68e38p-30f, -0x1.253ae6p-32f, -0x1.bfa1dep-35f,
     -0x1.40f5dp-37f, -0x1.b05f1ep-40f, -0x1.11938p-42f, 0},
    {-0x1.fb1722p-17f, 0x1.8bf26cp-5f, 0x1.688392p-4f, 0x1.ce8bdp-4f,
     0x1.ef8e3p-4f, 0x1.d394dcp-4f, 0x1.8de0d6p-4f, 0x1.3537e4p-4f,
     0x1.ba4b7ap-5f, 0x1.248364p-5f, 0x1.66fafp-6f, 0x1.99b848p-7f,
     0x1.b3aafap-8f, 0x1.b02b4ap-9f, 0x1.905762p-10f, 0x1.5a9c4p-11f,
     0x1.18a7dep-12f, 0x1.a94bf8p-14f, 0x1.2dab32p-15f, 0x1.90c8fp-17f,
     0x1.f2d1a2p-19f, 0x1.22e1p-20f, 0x1.3df74p-22f, 0x1.45d728p-24f,
     0x1.3915cp-26f, 0x1.1a1c3cp-28f, 0x1.dcd4a4p-31f, 0x1.79ffa2p-33f,
     0x1.191bb2p-35f, 0x1.884542p-38f, 0x1.00ce2ep-40f, 0},
    {0x1.11bb8ap-4f, 0x1.ed950ap-5f, 0x1.67c84p-5f, 0x1.67cdep-6f,
     0x1.49639cp-14f, -0x1.16a31cp-6f, -0x1.b83626p-6f, -0x1.e48906p-6f,
     -0x1.b992d2p-6f, -0x1.5ff30ep-6f, -0x1.f6fecep-7f, -0x1.46a14cp-7f,
     -0x1.84ad66p-8f, -0x1.aa134ap-9f, -0x1.afe7bap-10f, -0x1.95f73cp-11f,
     -0x1.628f1ep-12f, -0x1.20311ap-13f, -0x1.b490b2p-15f, -0x1.347166p-16f,
     -0x1.96e51ep-18f, -0x1.f577e6p-20f, -0x1.20db4p-21f, -0x1.37396p-23f,
     -0x1.39bdc6p-25f, -0x1.2807dcp-27f, -0x1.058576p-29f, -0x1.b0bf4cp-32f,
     -0x1.4f66dep-34f, -0x1.e72444p-37f, -0x1.4b88bep-39f, 0},
    {-0x1.96dbaep-9f, -0x1.82775p-7f, -0x1.497daap-6f, -0x1.76d922p-6f,
     -0x1.49b9dep-6f, -0x1.bfbad4p-7f, -0x1.8eb768p-8f, 0x1.8185fap-12f,
     0x1.252324p-8f, 0x1.90efbap-8f, 0x1.843c98p-8f, 0x1.376768p-8f,
     0x1.b3f348p-9f, 0x1.10d904p-9f, 0x1.3585dcp-10f, 0x1.40e488p-11f,
     0x1.31be06p-12f, 0x1.0cc874p-13f, 0x1.b551e6p-15f, 0x1.49f4d4p-16f,
     0x1.ce95d2p-18f, 0x1.2daefcp-19f, 0x1.6e8378p-21f, 0x1.9f219ep-23f,
     0x1.b6b678p-25f, 0x1.b0e07ap-27f, 0x1.8f0312p-29f, 0x1.57c35ep-31f,
     0x1.14ee38p-33f, 0x1.a15cecp-36f, 0x1.2649b4p-38f, 0},
};
/* gelu_tanh_quarters: error 2^-25.6 */
static const float gelu_tanh_quarters[QUARTER_COLUMNS][PIECES] = {
    {0x1p-1f, 0x1.9aee04p-2f, 0x1.3bfa4cp-2f, 0x1.d0523p-3f,
     0x1.453d22p-3f, 0x1.b1795ep-4f, 0x1.123c8ep-4f, 0x1.48a34ap-5f,
     0x1.73ef8ap-6f, 0x1.8c25e8p-7f, 0x1.8b6cccp-8f, 0x1.701acep-9f,
     0x1.3dd716p-10f, 0x1.fa1996p-12f, 0x1.71379ap-13f, 0x1.ea7566p-15f,
     0x1.26a204p-16f, 0x1.3e0c9ap-18f, 0x1.326b18p-20f, 0x1.05b8ccp-22f,
     0x1.89ba44p-25f, 0x1.0311fp-27f, 0x1.28401cp-30f, 0x1.2467ep-33f,
     0x1.eee7f8p-37f, 0x1.64b37cp-40f, 0x1.b2ff12p-44f, 0x1.bdca72p-48f,
     0x1.7d5c46p-52f, 0x1.0e8446p-56f, 0x1.3c1ad6p-61f, 0},
    {-0x1.988444p-2f, -0x1.8be386p-2f, -0x1.68542p-2f, -0x1.341906p-2f,
     -0x1.ef266p-3f, -0x1.76152p-3f, -0x1.09c7e8p-3f, -0x1.631938p-4f,
     -0x1.bda5d6p-5f, -0x1.0628aep-5f, -0x1.2042e2p-6f, -0x1.26ff36p-7f,
     -0x1.178a98p-8f, -0x1.e7bb5p-10f, -0x1.85407ap-11f, -0x1.1a569ap-12f,
     -0x1.71c0eep-14f, -0x1.b233d6p-16f, -0x1.c61f76p-18f, -0x1.a42c3ep-20f,
     -0x1.559d94p-22f, -0x1.e4dd9ap-25f, -0x1.2a5748p-27f, -0x1.3c343p-30f,
     -0x1.1eb6b8p-33f, -0x1.b9da52p-37f, -0x1.1f652p-40f, -0x1.397736p-44f,
     -0x1.1cbceep-48f, -0x1.abe2a4p-53f, -0x1.082016p-57f, 0},
    {-0x1.034c68p-16f, 0x1.8dafb4p-5f, 0x1.6983bcp-4f, 0x1.ceb302p-4f,
     0x1.ee60dep-4f, 0x1.d18602p-4f, 0x1.8c0a84p-4f, 0x1.3490aep-4f,
     0x1.bbc08ep-5f, 0x1.279b82p-5f, 0x1.6d2572p-6f, 0x1.a17908p-7f,
     0x1.b82b62p-8f, 0x1.a9d818p-9f, 0x1.77c7p-10f, 0x1.2c8052p-11f,
     0x1.b0a0cep-13f, 0x1.1671b4p-14f, 0x1.3e4f38p-16f, 0x1.410204p-18f,
     0x1.1bb2a8p-20f, 0x1.b48dd8p-23f, 0x1.2280d6p-25f, 0x1.4c3582p-28f,
     0x1.444d2ep-31f, 0x1.0c7cb6p-34f, 0x1.768fb2p-38f, 0x1.b56486p-42f,
     0x1.a8bc3ep-46f, 0x1.54ba12p-50f, 0x1.c0a49cp-55f, 0},
    {0x1.131cb2p-4f, 0x1.ef25d8p-5f, 0x1.66c6a2p-5f, 0x1.6153bap-6f,
     -0x1.57a46cp-12f, -0x1.18a334p-6f, -0x1.b40508p-6f, -0x1.dcf81ep-6f,
     -0x1.b3405cp-6f, -0x1.5dd0dap-6f, -0x1.fac5cap-7f, -0x1.4e0cacp-7f,
     -0x1.91c70ep-8f, -0x1.b81b1ep-9f, -0x1.b536e2p-10f, -0x1.87b9ep-11f,
     -0x1.3a9562p-12f, -0x1.c1fe78p-14f, -0x1.1cce3ap-15f, -0x1.3cff86p-17f,
     -0x1.344acp-19f, -0x1.045794p-21f, -0x1.7b6c34p-24f, -0x1.da3386p-27f,
     -0x1.f91346p-30f, -0x1.c79c24p-33f, -0x1.59e7f2p-36f, -0x1.b74c2ap-40f,
     -0x1.cfb2d4p-44f, -0x1.94409ep-48f, -0x1.213eb4p-52f, 0},
    {-0x1.a01e7ep-9f, -0x1.8ac216p-7f, -0x1.4f06cp-6f, -0x1.799e44p-6f,
     -0x1.4735dp-6f, -0x1.b3477ap-7f, -0x1.79157p-8f, 0x1.c44ecap-12f,
     0x1.18394ap-8f, 0x1.7e79d6p-8f, 0x1.77d97cp-8f, 0x1.353112p-8f,
     0x1.bdafbap-9f, 0x1.1de16ap-9f, 0x1.47a0c8p-10f, 0x1.4edc34p-11f,
     0x1.2ffad4p-12f, 0x1.e7aa8p-14f, 0x1.57bf16p-15f, 0x1.a771f2p-17f,
     0x1.c533bap-19f, 0x1.a3035cp-21f, 0x1.4cba5cp-23f, 0x1.c3333p-26f,
     0x1.03af18p-28f, 0x1.f87462p-32f, 0x1.9af666p-35f, 0x1.171e06p-38f,
     0x1.3a2a42p-42f, 0x1.233832p-46f, 0x1.b9e63ep-51f, 0},
};
/* gelu_fours: error 2^-26.0 */
static const float gelu_fours[FOURS_COLUMNS][FOURS] = {
    {0x1.2b6528p-4f, 0x1.df72ccp-10f, 0x1.b59cd6p-18f, 0},
    {-0x1.1c4378p-3f, -0x1.7f0cf2p-8f, -0x1.f56a9p-16f, -0x1.2bcd34p-26f},
    {0x1.9cfb72p-4f, 0x1.16b83p-7f, 0x1.09d3bp-14f, 0x1.5981c2p-24f},
    {-0x1.a7eb8ep-6f, -0x1.d5f50ep-8f, -0x1.a4969ep-14f, 0x1.4311dep-23f},
    {-0x1.08af9cp-7f, 0x1.1025p-8f, 0x1.a145f4p-15f, 0x1.44df5p-20f},
    {0x1.35294ap-8f, -0x1.2a897p-11f, -0x1.125872p-13f, 0x1.31aa7cp-19f},
    {-0x1.141fdp-9f, 0x1.6c09b2p-11f, -0x1.4231dp-15f, 0x1.a58f7cp-19f},
    {-0x1.d9e0dcp-10f, 0x1.0c6fa2p-11f, -0x1.c16096p-15f, 0x1.03c13cp-19f},
    {-0x1.1cb6a2p-12f, 0x1.c3f4dap-15f, -0x1.5c44ap-18f, 0x1.606cfp-21f},
};
/* gelu_tanh_fours: error 2^-26.1 */
static const float gelu_tanh_fours[FOURS_COLUMNS][FOURS] = {
    {0x1.2c08e6p-4f, 0x1.b78962p-10f, 0x1.5a12dep-19f, 0},
    {-0x1.1cb3c4p-3f, -0x1.755d74p-8f, -0x1.ecfb78p-17f, -0x1.fbee12p-34f},
    {0x1.9b017ap-4f, 0x1.1adc14p-7f, 0x1.39d4bap-15f, 0x1.71c5b2p-26f},
    {-0x1.a51ebap-6f, -0x1.e5cb1ep-8f, -0x1.3d18b4p-14f, 0x1.90a934p-23f},
    {-0x1.0009d4p-7f, 0x1.0e8f44p-8f, 0x1.2d0f68p-15f, 0x1.f57fcap-21f},
    {0x1.1e5ea2p-8f, -0x1.4cbd82p-11f, -0x1.1bdb0ep-13f, 0x1.2a7386p-19f},
    {-0x1.4e8144p-9f, 0x1.f04238p-12f, -0x1.6fcd22p-15f, 0x1.952d82p-19f},
    {-0x1.02479ep-9f, 0x1.985276p-12f, -0x1.0f3fd2p-14f, 0x1.14fff2p-19f},
    {-0x1.312decp-12f, 0x1.1cfa6cp-15f, -0x1.1a2146p-17f, 0x1.636936p-21f},
};
/* clang-format on */

typedef struct piece_table {
    const char *name; /* of the constant that single elements are read from */
    const float *at;  /* [column][piece] */
    int n_columns, n_pieces;
} piece_table;

/* Elements first .. first + n - 1 of a column, which repeats itself. */
static LLVMValueRef row_of(emit *e, const piece_table *t, const float *column, int first, int n) {
    LLVMValueRef v[PIECES];
    for (int i = 0; i < n; i++) v[i] = LLVMConstReal(e->t_f32, (double)column[(first + i) % t->n_pieces]);
    return LLVMConstVector(v, (unsigned)n);
}

/* Lanes first .. first + n - 1 of v; those beyond its last one are any. */
static LLVMValueRef lanes_of(emit *e, LLVMValueRef v, int first, int n) {
    LLVMValueRef index[2 * HALF];
    for (int i = 0; i < n; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)((first + i) % e->lanes), 0);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(index, (unsigned)n), "");
}

/* Elements index % n_pieces of a column, as many at a time as the permutation has lanes. */
static LLVMValueRef permute(emit *e, const piece_table *t, const float *column, LLVMValueRef index) {
    const bool is_wide = t->n_pieces == PIECES;
    const char *name = is_wide ? "llvm.x86.avx512.vpermi2var.ps.512" : "llvm.x86.avx.vpermilvar.ps.256";
    const int lanes = is_wide ? HALF : 8;
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, strlen(name)), NULL, 0);
    LLVMValueRef args[3] = {row_of(e, t, column, 0, lanes), index, NULL}, out = NULL;
    if (is_wide) args[2] = row_of(e, t, column, HALF, HALF);
    const unsigned n_args = is_wide ? 3 : 2;
    if (e->lanes == lanes) return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, n_args, "");
    for (int first = 0; first < e->lanes; first += lanes) { /* another width: blocks that are transposed */
        int n = e->lanes - first < lanes ? e->lanes - first : lanes;
        args[1] = lanes_of(e, index, first, lanes);
        LLVMValueRef v = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, n_args, "");
        for (int i = 0; i < n; i++) {
            LLVMValueRef lane = LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->t_i32, (unsigned)i, 0), "");
            LLVMValueRef to = LLVMConstInt(e->t_i32, (unsigned)(first + i), 0);
            out = LLVMBuildInsertElement(e->b, out ? out : LLVMGetPoison(em_vec(e, e->t_f32)), lane, to, "");
        }
    }
    return out;
}

/* By the permutation, or one element from memory, where the columns of a table are a constant of the module. */
static LLVMValueRef look_up(emit *e, const piece_table *t, int column, LLVMValueRef index) {
    const int first = column * t->n_pieces, n = t->n_columns * t->n_pieces;
    if (e->lanes > 1) return permute(e, t, t->at + first, index);
    LLVMValueRef global = LLVMGetNamedGlobal(e->mod, t->name);
    if (!global) {
        LLVMValueRef v[COLUMNS * PIECES];
        for (int i = 0; i < n; i++) v[i] = LLVMConstReal(e->t_f32, (double)t->at[i]);
        global = LLVMAddGlobal(e->mod, LLVMArrayType2(e->t_f32, (unsigned)n), t->name);
        LLVMSetInitializer(global, LLVMConstArray2(e->t_f32, v, (unsigned)n));
        LLVMSetGlobalConstant(global, 1);
        LLVMSetLinkage(global, LLVMPrivateLinkage);
        LLVMSetAlignment(global, 64);
    }
    LLVMValueRef at = em_add(e, em_and(e, index, em_i32(e, t->n_pieces - 1)), em_i32(e, first));
    return LLVMBuildLoad2(e->b, e->t_f32, LLVMBuildGEP2(e->b, e->t_f32, global, &at, 1, ""), "");
}

/* Columns first .. n_columns - 1 of the piece as a polynomial of h, the coefficient of h^0 first. */
static LLVMValueRef polynomial(emit *e, const piece_table *t, int first, LLVMValueRef h, LLVMValueRef index) {
    LLVMValueRef v = look_up(e, t, t->n_columns - 1, index);
    for (int c = t->n_columns - 2; c >= first; c--) v = em_mad(e, v, h, look_up(e, t, c, index));
    return v;
}

/* All columns in two chains, of even and of odd powers: one of eight products would be waited for. (Zen 3: 0.85 of the
 * time; by quarters of the chain, Estrin's way, 0.88.) */
static LLVMValueRef polynomial_in_two(emit *e, const piece_table *t, LLVMValueRef h, LLVMValueRef index) {
    LLVMValueRef square = em_fmul(e, h, h), part[2];
    for (int c = t->n_columns - 1; c >= 0; c--) {
        LLVMValueRef v = look_up(e, t, c, index);
        part[c & 1] = c >= t->n_columns - 2 ? v : em_mad(e, part[c & 1], square, v);
    }
    return em_mad(e, part[1], h, part[0]);
}

/* Four pieces an octave; column 0 has their centers. */
static LLVMValueRef by_octaves(emit *e, const piece_table *t, LLVMValueRef a) {
    LLVMValueRef index = em_lshr(e, em_bits_of_f32(e, mi_max(e, em_f32(e, 0x1p-4), a)), SHIFT);
    return polynomial(e, t, 1, em_fsub(e, a, look_up(e, t, 0, index)), index);
}

/* Pieces of one width, around its multiples, up to the last one's: adding 1.5 * 2^23 widths rounds to them, and the
 * last bits of the sum count them. Additions do not keep the units busy that multiply. */
static LLVMValueRef by_even_pieces(emit *e, const piece_table *t, double width, LLVMValueRef a) {
    a = mi_min(e, em_f32(e, (t->n_pieces - 1) * width), a);
    LLVMValueRef by = em_f32(e, 0x1.8p23 * width), sum = em_fadd(e, a, by), h = em_fsub(e, a, em_fsub(e, sum, by));
    return polynomial(e, t, 0, h, em_bits_of_f32(e, sum));
}

/* Pieces of one width w, number i from i w to (i + 1) w, where h is 0, up to the last one's end. They are numbered by
 * what rounding (a - w / 2) / w gives; 1 / w is a little smaller, so that the last end is of the last piece. The sums and
 * the last product are exact. */
static LLVMValueRef by_pieces_to_ends(emit *e, const piece_table *t, double width, LLVMValueRef a) {
    a = mi_min(e, em_f32(e, t->n_pieces * width), a);
    LLVMValueRef by = em_f32(e, 0x1.8p23), inverse = em_f32(e, (1 - 0x1p-22) / width);
    LLVMValueRef sum = em_mad(e, em_fsub(e, a, em_f32(e, width / 2)), inverse, by), number = em_fsub(e, sum, by);
    LLVMValueRef h = em_mad(e, number, em_f32(e, -width), em_fsub(e, a, em_f32(e, width)));
    return polynomial_in_two(e, t, h, em_bits_of_f32(e, sum));
}

bool mi_has_pieces(const emit *e) { return e->level->has_mask; }
bool mi_has_gelu_pieces(const emit *e) { return e->level->vector_bytes >= 32; }

/* From 10 on the result is 1. */
LLVMValueRef mi_tanh_pieces(emit *e, LLVMValueRef a) {
    static const piece_table table = {"fk_tanh", tanh_pieces[0], COLUMNS, PIECES};
    return by_octaves(e, &table, mi_min(e, em_f32(e, 10), a));
}

/* a / 4 and pieces of the rest: the slope at 0 is irrational, and rounding the smaller one counts less. From 4 on the
 * result is 1. */
LLVMValueRef mi_erf_pieces(emit *e, LLVMValueRef a) {
    static const piece_table table = {"fk_erf", erf_pieces[0], COLUMNS, PIECES};
    a = mi_min(e, em_f32(e, 4), a);
    return em_mad(e, a, em_f32(e, 0.25), by_octaves(e, &table, a));
}

/* 0 above 7.625 by quarters, from 5.8125 on by fours. */
LLVMValueRef mi_gelu_tail_pieces(emit *e, LLVMValueRef a, bool is_tanh) {
    static const piece_table quarters[2] = {{"fk_gelu", gelu_quarters[0], QUARTER_COLUMNS, PIECES},
                                            {"fk_gelu_tanh", gelu_tanh_quarters[0], QUARTER_COLUMNS, PIECES}},
                             fours[2] = {{"fk_gelu", gelu_fours[0], FOURS_COLUMNS, FOURS},
                                         {"fk_gelu_tanh", gelu_tanh_fours[0], FOURS_COLUMNS, FOURS}};
    if (mi_has_pieces(e)) return by_even_pieces(e, &quarters[is_tanh], 0.25, a);
    return by_pieces_to_ends(e, &fours[is_tanh], 93.0 / 64, a);
}
