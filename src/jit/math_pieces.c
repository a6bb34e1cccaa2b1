/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* math_pieces.c: functions of |x| as a polynomial of degree 5 in each of 32 pieces, whose coefficients lie in registers
 * and are looked up by AVX-512's permutation of two of them: no division, no exp, and one path for all arguments.
 *
 * Pieces are numbered by bits 21 to 25 of the float: four an octave, eight octaves from 2^-4 on; the first one goes
 * down to 0. The permutation takes the low five bits of its index, so the octaves wrap around by themselves. */
#include "jit/math_impl.h"

enum { PIECES = 32, HALF = PIECES / 2, COLUMNS = 7, SHIFT = 21 };

/* clang-format off: an octave a line */
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
/* gelu_pieces: error 2^-23.8 */
static const float gelu_pieces[COLUMNS][PIECES] = {
    {0x1.1fff88p+1f, 0x1.5fffaap+1f, 0x1.a00166p+1f, 0x1.dfffdcp+1f,
     0x1.20017ep+2f, 0x1.6000fep+2f, 0x1.a00034p+2f, 0x1.cp+2f,
     0x1p+3f, 0x1.4p+3f, 0x1.8p+3f, 0x1.cp+3f,
     0, 0x1.6000c6p-4f, 0x1.9ffeb2p-4f, 0x1.dfffdcp-4f,
     0x1.1fff92p-3f, 0x1.600138p-3f, 0x1.a0011ap-3f, 0x1.dfff46p-3f,
     0x1.200132p-2f, 0x1.5fff98p-2f, 0x1.a0016cp-2f, 0x1.dffeep-2f,
     0x1.20004cp-1f, 0x1.60004cp-1f, 0x1.a000fcp-1f, 0x1.e00132p-1f,
     0x1.20009p+0f, 0x1.5ffff4p+0f, 0x1.9ffff6p+0f, 0x1.dfff4p+0f},
    {0x1.90960ep-7f, 0x1.86935cp-9f, 0x1.2e7b9p-11f, 0x1.72dc0cp-14f,
     0x1.c95d5ep-19f, 0x1.4b030ap-26f, 0x1.72a82ap-35f, 0,
     0, 0, 0, 0,
     0x1p-1f, 0x1.dcef9ap-2f, 0x1.d694ecp-2f, 0x1.d03c8p-2f,
     0x1.c6bdcep-2f, 0x1.ba212p-2f, 0x1.ad9616p-2f, 0x1.a11fb2p-2f,
     0x1.8e998ap-2f, 0x1.764a48p-2f, 0x1.5e7dfcp-2f, 0x1.474bf6p-2f,
     0x1.25c5bp-2f, 0x1.f79194p-3f, 0x1.aa7f1ap-3f, 0x1.64dc54p-3f,
     0x1.0ad6e6p-3f, 0x1.5a61b4p-4f, 0x1.aaa67ep-5f, 0x1.f206e2p-6f},
    {-0x1.040504p-5f, -0x1.29fc78p-7f, -0x1.09ea1cp-9f, -0x1.71bac4p-12f,
     -0x1.0c22e4p-16f, -0x1.cf2864p-24f, -0x1.2729bcp-32f, 0,
     0, 0, 0, 0,
     -0x1.988454p-2f, -0x1.9702dap-2f, -0x1.966a5cp-2f, -0x1.95b8bp-2f,
     -0x1.947f6p-2f, -0x1.9286eep-2f, -0x1.902ce8p-2f, -0x1.8d731p-2f,
     -0x1.88acbp-2f, -0x1.81148cp-2f, -0x1.7828aap-2f, -0x1.6e03ap-2f,
     -0x1.5cbda4p-2f, -0x1.42884cp-2f, -0x1.25aaf2p-2f, -0x1.073dcep-2f,
     -0x1.b1eb5p-3f, -0x1.3d7726p-3f, -0x1.b46194p-4f, -0x1.19c13p-4f},
    {0x1.2489bap-5f, 0x1.99bd0ep-7f, 0x1.b00fecp-9f, 0x1.5a77ep-11f,
     0x1.26af22p-15f, 0x1.280402p-22f, 0x1.8f059p-31f, 0,
     0, 0, 0, 0,
     -0x1.cb7f3cp-31f, 0x1.17d294p-6f, 0x1.4a3562p-6f, 0x1.7c5d0ap-6f,
     0x1.c70e9ep-6f, 0x1.14bdbap-5f, 0x1.452558p-5f, 0x1.749b4ep-5f,
     0x1.b9c41cp-5f, 0x1.08bdd2p-4f, 0x1.31a216p-4f, 0x1.572298p-4f,
     0x1.8855b8p-4f, 0x1.bb7bcp-4f, 0x1.dd36e4p-4f, 0x1.ed9518p-4f,
     0x1.e8297ep-4f, 0x1.b483cap-4f, 0x1.628f68p-4f, 0x1.0824e6p-4f},
    {-0x1.601d14p-6f, -0x1.45eec2p-7f, -0x1.a7d14p-9f, -0x1.926e2cp-11f,
     -0x1.ab149p-15f, -0x1.13156ep-21f, -0x1.daab2p-30f, 0,
     0, 0, 0, 0,
     0x1.10584ep-4f, 0x1.0d563ap-4f, 0x1.0c262p-4f, 0x1.0ac438p-4f,
     0x1.085516p-4f, 0x1.046c7ep-4f, 0x1.ff8d48p-5f, 0x1.f4d2a8p-5f,
     0x1.e2265cp-5f, 0x1.c4c54cp-5f, 0x1.a2c4b4p-5f, 0x1.7cca46p-5f,
     0x1.3ddc8ap-5f, 0x1.c58efcp-6f, 0x1.0a207ep-6f, 0x1.53f8fcp-8f,
     -0x1.3360c2p-7f, -0x1.78fcdep-6f, -0x1.dd4a5ep-6f, -0x1.d88494p-6f},
    {0x1.8c1ffcp-8f, 0x1.36ceb4p-8f, 0x1.12aaf2p-9f, 0x1.460cf4p-11f,
     0x1.fa2666p-15f, 0x1.dad66cp-21f, 0x1.26bb62p-28f, 0,
     0, 0, 0, 0,
     -0x1.63caap-19f, -0x1.172124p-8f, -0x1.491174p-8f, -0x1.7a9dd4p-8f,
     -0x1.c407b4p-8f, -0x1.11ffd8p-7f, -0x1.40a798p-7f, -0x1.6dc32p-7f,
     -0x1.ae03eep-7f, -0x1.fc8238p-7f, -0x1.20c09ap-6f, -0x1.3dee8ep-6f,
     -0x1.5ea69cp-6f, -0x1.754efp-6f, -0x1.73ed1ap-6f, -0x1.5cc048p-6f,
     -0x1.19b6eep-6f, -0x1.42e9cap-7f, -0x1.570d78p-9f, 0x1.66e28p-9f},
    {0x1.fdf672p-12f, -0x1.21e618p-10f, -0x1.c5192ep-11f, -0x1.698526p-12f,
     -0x1.64b404p-15f, -0x1.a8e134p-21f, -0x1.379ff2p-28f, 0,
     0, 0, 0, 0,
     -0x1.45d98ap-7f, -0x1.40cd4ep-7f, -0x1.3e6ed8p-7f, -0x1.3badecp-7f,
     -0x1.36d41p-7f, -0x1.2f13b4p-7f, -0x1.25e45cp-7f, -0x1.1b55eap-7f,
     -0x1.090e22p-7f, -0x1.d95104p-8f, -0x1.989ad2p-8f, -0x1.51a736p-8f,
     -0x1.bee56ap-9f, -0x1.0ae4e4p-10f, 0x1.4840dcp-10f, 0x1.a4ecfap-9f,
     0x1.58eb98p-8f, 0x1.92a8e2p-8f, 0x1.550464p-8f, 0x1.aec488p-9f},
};
/* clang-format on */

static LLVMValueRef row_of(emit *e, const float *c, int first, int n) {
    LLVMValueRef v[PIECES];
    for (int i = 0; i < n; i++) v[i] = LLVMConstReal(e->t_f32, (double)c[first + i]);
    return LLVMConstVector(v, (unsigned)n);
}

/* Lanes first .. first + n - 1 of v; those beyond its last one are any. */
static LLVMValueRef lanes_of(emit *e, LLVMValueRef v, int first, int n) {
    LLVMValueRef index[2 * HALF];
    for (int i = 0; i < n; i++) index[i] = LLVMConstInt(e->t_i32, (unsigned)((first + i) % e->lanes), 0);
    return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)), LLVMConstVector(index, (unsigned)n), "");
}

/* Elements index % 32 of a column: 16 at a time. */
static LLVMValueRef permute(emit *e, const float *column, LLVMValueRef index) {
    static const char name[] = "llvm.x86.avx512.vpermi2var.ps.512";
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->mod, LLVMLookupIntrinsicID(name, sizeof name - 1), NULL, 0);
    LLVMValueRef args[3] = {row_of(e, column, 0, HALF), index, row_of(e, column, HALF, HALF)}, out = NULL;
    if (e->lanes == HALF) return LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, 3, "");
    for (int first = 0; first < e->lanes; first += HALF) { /* another width: blocks that are transposed */
        int n = e->lanes - first < HALF ? e->lanes - first : HALF;
        args[1] = lanes_of(e, index, first, HALF);
        LLVMValueRef v = LLVMBuildCall2(e->b, LLVMGlobalGetValueType(fn), fn, args, 3, "");
        for (int i = 0; i < n; i++) {
            LLVMValueRef lane = LLVMBuildExtractElement(e->b, v, LLVMConstInt(e->t_i32, (unsigned)i, 0), "");
            LLVMValueRef to = LLVMConstInt(e->t_i32, (unsigned)(first + i), 0);
            out = LLVMBuildInsertElement(e->b, out ? out : LLVMGetPoison(em_vec(e, e->t_f32)), lane, to, "");
        }
    }
    return out;
}

/* By the permutation, or one element from memory, where the columns of a table are a constant of the module. */
static LLVMValueRef look_up(emit *e, const char *name, const float (*table)[PIECES], int column, LLVMValueRef index) {
    if (e->lanes > 1) return permute(e, table[column], index);
    LLVMValueRef global = LLVMGetNamedGlobal(e->mod, name);
    if (!global) {
        LLVMValueRef v[COLUMNS * PIECES];
        for (int i = 0; i < COLUMNS * PIECES; i++)
            v[i] = LLVMConstReal(e->t_f32, (double)table[i / PIECES][i % PIECES]);
        global = LLVMAddGlobal(e->mod, LLVMArrayType2(e->t_f32, COLUMNS * PIECES), name);
        LLVMSetInitializer(global, LLVMConstArray2(e->t_f32, v, COLUMNS * PIECES));
        LLVMSetGlobalConstant(global, 1);
        LLVMSetLinkage(global, LLVMPrivateLinkage);
        LLVMSetAlignment(global, 64);
    }
    LLVMValueRef at = em_add(e, em_and(e, index, em_i32(e, PIECES - 1)), em_i32(e, column * PIECES));
    return LLVMBuildLoad2(e->b, e->t_f32, LLVMBuildGEP2(e->b, e->t_f32, global, &at, 1, ""), "");
}

static LLVMValueRef pieces(emit *e, const char *name, const float (*table)[PIECES], LLVMValueRef a) {
    LLVMValueRef index = em_lshr(e, em_bits_of_f32(e, mi_max(e, em_f32(e, 0x1p-4), a)), SHIFT);
    LLVMValueRef h = em_fsub(e, a, look_up(e, name, table, 0, index));
    LLVMValueRef v = look_up(e, name, table, COLUMNS - 1, index);
    for (int c = COLUMNS - 2; c > 0; c--) v = em_mad(e, v, h, look_up(e, name, table, c, index));
    return v;
}

bool mi_has_pieces(const emit *e) { return e->level->has_mask; }

/* From 10 on the result is 1. */
LLVMValueRef mi_tanh_pieces(emit *e, LLVMValueRef a) {
    return pieces(e, "fk_tanh", tanh_pieces, mi_min(e, em_f32(e, 10), a));
}

/* a / 4 and pieces of the rest: the slope at 0 is irrational, and rounding the smaller one counts less. From 4 on the
 * result is 1. */
LLVMValueRef mi_erf_pieces(emit *e, LLVMValueRef a) {
    a = mi_min(e, em_f32(e, 4), a);
    return em_mad(e, a, em_f32(e, 0.25), pieces(e, "fk_erf", erf_pieces, a));
}

/* From 7 on 0. */
LLVMValueRef mi_normal_tail_pieces(emit *e, LLVMValueRef a) {
    return pieces(e, "fk_normal_tail", gelu_pieces, mi_min(e, em_f32(e, 7), a));
}
