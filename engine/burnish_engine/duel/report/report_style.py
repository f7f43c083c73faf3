"""CSS of a duel's report: the studio's colors, light and dark, and nothing from the network."""

STYLE = """
:root { --ink:#25221d; --dim:#665f55; --page:#f5f3ef; --card:#fdfcfa; --line:#e4e0d8; --edge:#b9b1a4; --live:#8f5500;
  --warn:#8a5a00; --warn-soft:#f8ecd2; --bad:#b3261e; --s0:#c97a00; --s1:#0072b2; --s2:#00805d; --s3:#a8487f; }
@media (prefers-color-scheme: dark) { :root { --ink:#ece7df; --dim:#aaa195; --page:#1b1917; --card:#24211e;
  --line:#3b3630; --edge:#645b50; --live:#f3b35a; --warn:#ecc06c; --warn-soft:#40341e; --bad:#f2928a; --s0:#f0a02c;
  --s1:#5eb3e6; --s2:#3fc79a; --s3:#e08cbb; } }
:root { color-scheme: light dark; }
* { box-sizing:border-box; }
body { margin:0; background:var(--page); color:var(--ink); font:16px/1.5 system-ui,sans-serif; }
main { max-width:60rem; margin:0 auto; padding:3rem 1.5rem 4rem; }
h1 { font-size:1.75rem; line-height:1.25; margin:0 0 .5rem; } h2 { font-size:1.15rem; margin:2.75rem 0 .75rem; }
h3 { font-size:.95rem; margin:0 0 .25rem; font-weight:600; }
p { margin:.25rem 0 .75rem; max-width:48rem; } .dim { color:var(--dim); } .small { font-size:.9rem; }
.headline { font-size:1.15rem; } .live { color:var(--live); font-weight:600; } .bad { color:var(--bad); }
.note { background:var(--warn-soft); color:var(--warn); border-radius:.5rem; padding:.75rem 1rem; max-width:none; }
.card { background:var(--card); border-radius:.5rem; padding:1rem 1.25rem; margin:0 0 1rem; }
.plots { display:grid; grid-template-columns:repeat(auto-fit,minmax(17rem,1fr)); gap:1rem; margin-bottom:1rem; }
.plots .card { margin:0; } .legend { display:flex; flex-wrap:wrap; gap:.25rem 1.5rem; margin:0 0 .75rem; }
.legend span { display:inline-flex; align-items:center; gap:.5rem; } .scroll { overflow-x:auto; }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums; font-size:.93rem; }
caption { text-align:left; color:var(--dim); padding-bottom:.25rem; }
th { text-align:left; font-weight:600; color:var(--dim); } tbody th { color:var(--ink); }
th,td { padding:.4rem 1rem .4rem 0; vertical-align:top; } td:last-child, th:last-child { padding-right:0; }
tbody tr { border-top:1px solid var(--line); } td.num, th.num { text-align:right; white-space:nowrap; }
code, pre { font-family:ui-monospace,monospace; font-size:.85rem; overflow-wrap:anywhere; }
pre { background:var(--card); border-radius:.5rem; padding:.75rem 1rem; white-space:pre-wrap; margin:.25rem 0 .75rem; }
.runs tbody th { white-space:nowrap; } .runs td:last-child { min-width:16rem; } .runs th:last-child { text-align:left; }
details summary { cursor:pointer; margin:.5rem 0; } svg { display:block; height:auto; } svg.sample { width:44px; }
svg text { font-family:system-ui,sans-serif; font-variant-numeric:tabular-nums; }
@media print { body { background:#fff; } .card { break-inside:avoid; } }
"""
