"""The report's style: two palettes, one column that fits from a phone to a wide screen, print."""

from __future__ import annotations

_LIGHT = """
--paper:#fbfaf7; --card:#ffffff; --ink:#1d2430; --muted:#596273; --rule:#e2e0d9; --soft:#f1efe9;
--asked:#2a6496; --fetched:#b8621b; --compute:#8e99a8; --bad:#a8241c; --warn:#8a5200; --link:#22588a;
--h0:#eceae4; --h1:#dbe6ee; --h2:#c0d5e4; --h3:#a1c1d8; --h4:#7eabca; --h5:#5a93ba; --h6:#3b7aa6; --h7:#23618f;
  --h8:#124871;
--part0:#b8621b; --part1:#d3a63a; --part2:#7b5ea7; --part3:#2a6496; --part4:#3d8b6e; --part5:#b04a73; --part6:#6f7f35;
--part7:#c3cad3;
"""
_DARK = """
--paper:#14171c; --card:#1b1f26; --ink:#e6e8ec; --muted:#a2abb8; --rule:#303640; --soft:#232831;
--asked:#6cabdd; --fetched:#e39a56; --compute:#64707f; --bad:#f28b82; --warn:#e8b35a; --link:#8fc1ea;
--h0:#232831; --h1:#22344a; --h2:#24425f; --h3:#275276; --h4:#2f658f; --h5:#3f7ca9; --h6:#5895c2; --h7:#7cb1d9;
  --h8:#abd2f0;
--part0:#e39a56; --part1:#e6c46b; --part2:#b39ad8; --part3:#6cabdd; --part4:#6fc2a2; --part5:#e08bae; --part6:#b3c470;
--part7:#454e5b;
"""

STYLE = (
    f":root{{color-scheme:light;{_LIGHT}}}\n"
    f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{_DARK}}}}}\n"
    f":root[data-theme=dark]{{color-scheme:dark;{_DARK}}}\n"
    """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth;scroll-padding-top:3.2rem}
body{margin:0 auto;overflow-wrap:anywhere;
 max-width:76rem;padding:0 clamp(.9rem,3vw,2rem) 3rem;background:var(--paper);color:var(--ink);
 font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
 font-variant-numeric:tabular-nums}
h1,h2,h3,p,dl,dd,ol,ul,figure{margin:0;padding:0}
h1{font-size:1.7rem;line-height:1.2;font-weight:650;letter-spacing:-.015em;overflow-wrap:anywhere}
h2{font-size:1.15rem;font-weight:650;letter-spacing:-.005em;margin-bottom:.25rem}
h3{font-size:1rem;font-weight:600;line-height:1.4}
a{color:var(--link)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.unseen,.skip:not(:focus){position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
 white-space:nowrap}
header{display:flex;gap:1rem;justify-content:space-between;align-items:flex-start;padding:2rem 0 .8rem}
header p,.lead,.empty,footer{color:var(--muted)}
header p{overflow-wrap:anywhere}
button,input{font:inherit;color:inherit}
#theme{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:.25rem .8rem;cursor:pointer}
nav{position:sticky;top:0;z-index:2;display:flex;gap:.1rem 1.15rem;overflow-x:auto;scrollbar-width:none;padding:.6rem 0;
 background:var(--paper);border-bottom:1px solid var(--rule);margin-bottom:1.2rem}
nav a{white-space:nowrap;text-decoration:none;color:var(--muted);font-size:.9rem}
nav a:hover{color:var(--ink);text-decoration:underline}
section{margin-bottom:2.4rem}
.lead{margin-bottom:.8rem;max-width:54rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(10.5rem,1fr));gap:.7rem}
@media (min-width:60rem){.tiles{grid-template-columns:repeat(4,1fr)}}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.7rem .9rem .75rem}
.tile dt{color:var(--muted);font-size:.85rem}
.tile .value{font-size:1.55rem;font-weight:600;line-height:1.3;letter-spacing:-.015em}
.tile .note{color:var(--muted);font-size:.82rem;line-height:1.35}
.tile.bad .value,.bad{color:var(--bad)}
.tile.warn .value{color:var(--warn)}
.stacks{display:grid;grid-template-columns:auto 1fr auto;gap:.35rem .7rem;align-items:center;margin-bottom:1rem}
.stack{display:flex;height:1.5rem;border-radius:4px;overflow:hidden;background:var(--soft)}
.stack i{min-width:0}
.part0{background:var(--part0)}
.part1{background:var(--part1)}
.part2{background:var(--part2)}
.part3{background:var(--part3)}
.part4{background:var(--part4)}
.part5{background:var(--part5)}
.part6{background:var(--part6)}
.part7{background:var(--part7)}
.findings{list-style:none;display:grid;gap:.7rem}
.finding{background:var(--card);border:1px solid var(--rule);border-left:4px solid var(--compute);border-radius:8px;
 padding:.75rem 1rem}
.finding.high{border-left-color:var(--bad)}
.finding.medium{border-left-color:var(--warn)}
.finding h3{overflow-wrap:anywhere}
.finding p{max-width:52rem;overflow-wrap:anywhere}
.badge{font-size:.75rem;font-weight:600;text-transform:uppercase;letter-spacing:.05em;color:var(--muted);
 margin-right:.3rem}
.high .badge{color:var(--bad)}
.medium .badge{color:var(--warn)}
.finding small{font-weight:400;color:var(--muted);font-size:.8rem}
.evidence{display:flex;flex-wrap:wrap;gap:.2rem 1.3rem;margin-top:.4rem;font-size:.86rem;color:var(--muted)}
.evidence div{display:flex;gap:.4rem;min-width:0}
.evidence dt{min-width:0}
.evidence dd{min-width:0;color:var(--ink);font-weight:550;overflow-wrap:anywhere}
figure{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.75rem 1rem .6rem;
 margin-bottom:.7rem;min-width:0}
figcaption{overflow-wrap:anywhere}
figcaption b{font-weight:600}
code{font:.9em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--soft);border-radius:4px;
 padding:.05em .3em}
figcaption span{color:var(--muted);font-size:.84rem}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:0 1.1rem;font-size:.84rem;color:var(--muted)}
.legend i{display:inline-block;width:.75rem;height:.75rem;border-radius:2px;margin-right:.4rem;vertical-align:-1px}
.legend .asked,.bar.c0{background:var(--asked)}
.legend .fetched{background:var(--fetched)}
.legend .compute{background:var(--compute)}
.legend .marks{background:var(--bad);width:2px}
.axes{display:grid;grid-template-columns:4.6rem minmax(0,1fr);grid-template-rows:auto 1.35rem;margin-top:.75rem}
.ys{position:relative;font-size:.76rem;color:var(--muted)}
.ys span{position:absolute;right:.55rem;transform:translateY(50%);white-space:nowrap;line-height:1}
.area{position:relative;height:9.5rem}
.many .area{height:6.2rem}
.many .axes{grid-template-columns:2.9rem minmax(0,1fr)}
.lines i{position:absolute;left:0;right:0;border-top:1px solid var(--rule)}
.plot{position:relative;height:100%;cursor:crosshair;touch-action:pan-y}
.plot svg{display:block;width:100%;height:100%;overflow:visible}
.xs{grid-column:2;position:relative;font-size:.76rem;color:var(--muted)}
.xs span{position:absolute;top:.3rem;transform:translateX(-50%);white-space:nowrap;line-height:1}
.xs .first{transform:none}
.xs .last{transform:translateX(-100%)}
.many{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));gap:.7rem}
.many figure{margin:0}
path.line{fill:none;stroke-width:1.5;vector-effect:non-scaling-stroke;stroke-linejoin:round}
path.line.asked{stroke:var(--asked)}
path.line.fetched{stroke:var(--fetched)}
path.under{stroke:none;opacity:.16}
.under.asked,g.asked{fill:var(--asked)}
g.fetched,path.fetched:not(.line){fill:var(--fetched)}
g.compute,path.compute{fill:var(--compute)}
path.marks{stroke:var(--bad);stroke-width:1.5;vector-effect:non-scaling-stroke;opacity:.75}
.heat{display:grid;grid-template-columns:max-content minmax(0,1fr) 3.6rem;gap:3px .8rem;align-items:center;
 background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:.8rem 1rem .5rem;font-size:.86rem}
.heat .plot{height:1.5rem;background:var(--h0);border-radius:2px;overflow:hidden}
.heat svg{shape-rendering:crispEdges}
.who{max-width:15rem;overflow-wrap:anywhere;line-height:1.25}
.mean{text-align:right;color:var(--muted);white-space:nowrap}
.ticks{grid-column:2;display:flex;justify-content:space-between;color:var(--muted);font-size:.76rem}
.scale{display:flex;align-items:center;gap:2px;font-size:.78rem;color:var(--muted);margin:.4rem 0 .8rem}
.scale i{width:1.1rem;height:.7rem}
.scale span{margin:0 .4rem 0 0}
.scale i+span{margin:0 0 0 .4rem}
"""
    + "".join(f"path.h{level}{{fill:var(--h{level})}}i.h{level}{{background:var(--h{level})}}" for level in range(9))
    + """
.box{overflow:auto;max-height:34rem;background:var(--card);border:1px solid var(--rule);border-radius:8px}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:.87rem}
th,td{padding:.34rem .75rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule);vertical-align:top;
 font-weight:400}
tbody tr:last-child>*{border-bottom:0}
tbody tr:hover>*{background:var(--soft)}
tbody th,.word{text-align:left}
b{font-weight:600}
code{font:.9em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--soft);border-radius:4px;
 padding:.05em .3em}
thead th{position:sticky;top:0;z-index:1;background:var(--soft);color:var(--muted);font-size:.82rem}
thead button{all:unset;cursor:pointer;white-space:nowrap}
thead button:hover{color:var(--ink)}
thead button:focus-visible{outline:2px solid var(--link)}
th[aria-sort]{color:var(--ink)}
th[aria-sort=ascending] button::after{content:" ↑"}
th[aria-sort=descending] button::after{content:" ↓"}
.url{display:block;min-width:13rem;max-width:34rem;white-space:normal;overflow-wrap:anywhere}
.bar{display:block;position:relative;min-width:7.5rem;padding-bottom:5px;background:none!important}
.bar::after{content:"";position:absolute;left:0;bottom:0;height:4px;border-radius:2px;width:var(--v);min-width:1px;
 background:var(--asked)}
.bar.c1::after{background:var(--fetched)}
.bar.c2::after{background:var(--compute)}
.filter{display:block;margin-bottom:.5rem;color:var(--muted);font-size:.88rem}
.filter[hidden],tr[hidden]{display:none}
.filter input{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:.3rem .6rem;
 width:min(20rem,55vw);margin-left:.3rem;color:var(--ink)}
details{margin-top:.6rem}
summary{cursor:pointer;color:var(--link);padding:.2rem 0;margin-bottom:.5rem}
.notes{padding-left:1.2rem;overflow-wrap:anywhere}
footer{border-top:1px solid var(--rule);padding-top:.8rem;font-size:.85rem}
#tip{position:fixed;z-index:5;transform:translateX(-50%);pointer-events:none;background:var(--ink);color:var(--paper);
 padding:.35rem .6rem;border-radius:6px;font-size:.8rem;line-height:1.4;white-space:pre;max-width:96vw}
#tip[hidden]{display:none}
@media (max-width:40rem){
 header{padding-top:1.2rem}
 .tiles{grid-template-columns:repeat(2,minmax(0,1fr));gap:.5rem}
 .tile{padding:.55rem .7rem}
 .tile .value{font-size:1.3rem}
 .heat{grid-template-columns:minmax(0,1fr) 3.6rem;grid-auto-flow:dense;padding:.7rem;row-gap:2px}
 .heat .who{grid-column:1;max-width:none;margin-top:.3rem}
 .heat .mean{grid-column:2;align-self:end}
 .heat .plot{grid-column:1/-1}
 .heat .ticks{grid-column:1/-1}
 figure{padding:.7rem .7rem .5rem}
 .axes{grid-template-columns:4.3rem minmax(0,1fr)}
 .area{height:7.5rem}
 th,td{padding:.34rem .55rem}
 .bar{min-width:4.6rem}
 .box{max-height:26rem}
}
@media print{nav,#theme,.filter{display:none}.box{max-height:none;overflow:visible}body{max-width:none}
 section{break-inside:avoid-page}}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
"""
)
